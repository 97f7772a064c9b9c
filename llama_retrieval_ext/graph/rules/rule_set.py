"""Rule sets, and all ways in which their rules match stored edges.

A step along a concluded edge is replaced by the pattern that concludes it. So a chain of rules
becomes one pattern over stored edges: one Cypher statement, one traversal.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from llama_retrieval_ext.errors import RuleCycleError, RuleError
from llama_retrieval_ext.graph.elements import Direction
from llama_retrieval_ext.graph.rules.rule import Pattern, Rule, Step, pattern_problems

MAX_DEPTH: Final = 4
MAX_VARIANTS: Final = 64
LANGUAGE_KEY: Final = "language"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way for a rule to match: a pattern without steps along concluded edges.

    ``chain`` has the ids of the rules used, this one first; ``confidence`` is their product.
    """

    rule: Rule
    pattern: Pattern
    chain: tuple[str, ...]
    confidence: float

    def tests(self, variable: str) -> bool:
        """Return whether a condition tests properties of a node, or the sentence names one."""
        tested = {where.variable for where in self.pattern.where}
        return variable in tested or variable in self.rule.properties_of


@dataclass(frozen=True)
class RuleSet:
    """Set of rules; a conclusion of one can be a step of another.

    Attributes:
        rules: Rules in the order of the file.
        file: Name of the source file, for messages.
        relations: Names of relation types by language, for proofs in words.

    Raises:
        RuleError: Two rules have the same id.
    """

    rules: tuple[Rule, ...]
    file: str = field(default="", compare=False)
    relations: Mapping[str, Mapping[str, str]] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for rule in self.rules:
            if rule.id in seen:
                raise RuleError(f"two rules have the id {rule.id!r}")
            seen.add(rule.id)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def concluding(self, types: Sequence[str]) -> list[Rule]:
        """Return the rules that conclude an edge of one of the types."""
        return [rule for type_ in dict.fromkeys(types) for rule in self._by_edge.get(type_, ())]

    @cached_property
    def _by_edge(self) -> dict[str, list[Rule]]:
        """The rules by the type of the edge that they conclude."""
        by_edge: dict[str, list[Rule]] = {}
        for rule in self.rules:
            if rule.concludes:
                by_edge.setdefault(rule.concludes.type, []).append(rule)
        return by_edge

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """The languages that sentences are written for; empty if they hold for any."""
        wheres = [where for rule in self.rules for where in rule.pattern.where]
        asked = (str(w.value) for w in wheres if (w.variable, w.key) == (None, LANGUAGE_KEY))
        return tuple(dict.fromkeys(asked))

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """All ways to match the rules, by stored edges and by conclusions of other rules.

        Raises:
            RuleCycleError: A rule depends on its own conclusion.
            RuleError: A chain is longer than 4 rules, has too many ways to match, or passes
                an optional, repeated or excluded step.
        """
        ways = [way for rule in self.rules for way in _unfolded(rule, self, (rule.id,))]
        for way in ways:
            for problem in pattern_problems(way.pattern):
                raise RuleError(f"rule {way.rule.id!r}, with {', '.join(way.chain[1:])}: {problem}")
        return tuple(ways)


def _unfolded(rule: Rule, rules: RuleSet, path: tuple[str, ...]) -> Iterator[Variant]:
    _check_steps(rule, rules)
    ways = [Variant(rule, rule.pattern, (rule.id,), rule.confidence)]
    for step in rule.pattern.required:
        # The variables at source and target of the concluded edge.
        ends = [(step.source, step.target), (step.target, step.source)]
        ends = {Direction.OUT: ends[:1], Direction.IN: ends[1:]}.get(step.direction, ends)
        for inner in rules.concluding(step.types):
            if inner.id in path:
                cycle = (*path[path.index(inner.id) :], inner.id)
                raise RuleCycleError(f"rules need each other: {' -> '.join(cycle)}", cycle)
            if len(path) >= MAX_DEPTH:
                raise RuleError(f"a chain of rules is longer than {MAX_DEPTH}: {', '.join(path)}")
            ways += [
                _inlined(way, step, sub, source, target)
                for way in ways
                if step in way.pattern.steps
                for sub in _unfolded(inner, rules, (*path, inner.id))
                for source, target in ends
            ]
            if len(ways) > MAX_VARIANTS:
                raise RuleError(f"rule {rule.id!r} has more than {MAX_VARIANTS} ways to match")
    yield from ways


def _check_steps(rule: Rule, rules: RuleSet) -> None:
    for step in (*rule.pattern.steps, *rule.pattern.unless):
        plain = not step.optional and step.hops == (1, 1) and step in rule.pattern.steps
        if not plain and rules.concluding(step.types):
            raise RuleError(
                f"rule {rule.id!r}: the step to {step.target!r} goes along a concluded edge "
                f"({', '.join(step.types)}), which only a required step of one hop can"
            )


def _inlined(outer: Variant, step: Step, inner: Variant, source: str, target: str) -> Variant:
    """Replace a step along a rule's conclusion by the rule's pattern."""
    concludes = inner.rule.concludes
    if concludes is None:
        raise RuleError(f"rule {inner.rule.id!r} concludes nothing")
    names = {concludes.source: source, concludes.target: target}
    prefix = f"{step.target}.{len(outer.chain)}."
    body = inner.pattern

    def renamed(variable: str) -> str:
        return names.get(variable, prefix + variable)

    def moved(step_: Step) -> Step:
        return replace(step_, source=renamed(step_.source), target=renamed(step_.target))

    pattern_ = outer.pattern
    at = pattern_.steps.index(step)
    steps = (*pattern_.steps[:at], *map(moved, body.required), *pattern_.steps[at + 1 :])
    bound = {body.start, *(s.target for s in (*body.required, *body.unless))}
    labels = ((renamed(name), label) for name, label in body.labels if name in bound)
    where = (
        replace(w, variable=None if w.variable is None else renamed(w.variable))
        for w in body.where
        if w.variable is None or w.variable in bound
    )
    times = (
        replace(
            time,
            variable=renamed(time.variable),
            other=renamed(time.other) if isinstance(time.other, str) else time.other,
        )
        for time in body.times
    )
    pattern = Pattern(
        pattern_.start,
        tuple(dict.fromkeys((*pattern_.labels, *labels))),
        _ordered(pattern_.start, steps),
        (*pattern_.unless, *map(moved, body.unless)),
        (*pattern_.where, *where),
        (*pattern_.times, *times),
    )
    confidence = outer.confidence * inner.confidence
    return Variant(outer.rule, pattern, (*outer.chain, *inner.chain), confidence)


def _ordered(start: str, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Order required steps so that each starts at a bound variable; reverse some if needed."""
    bound = {start}
    waiting = [step for step in steps if not step.optional]
    done: list[Step] = []
    while waiting:
        step = next((s for s in waiting if {s.source, s.target} & bound), None)
        if step is None:
            raise RuleError("a chain of rules falls into parts that no step joins")
        waiting.remove(step)
        if step.source not in bound:
            step = replace(
                step, source=step.target, target=step.source, direction=step.direction.reversed
            )
        done.append(step)
        bound.add(step.target)
    return (*done, *(step for step in steps if step.optional))
