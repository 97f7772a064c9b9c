"""Rule sets, and their conclusions from a graph, each with its proof; by subject for one process.

A step along a concluded edge is replaced by the pattern that concludes it. So a chain of rules
becomes one pattern over stored edges: one Cypher statement, one traversal.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Final

from llama_retrieval_ext.errors import RuleCycleError, RuleError
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.elements import Direction, Edge, GraphNode, Partition
from llama_retrieval_ext.graph.rules.matching import plan_matches, stored_properties
from llama_retrieval_ext.graph.rules.rule import Match, Pattern, Rule, Step, pattern_problems
from llama_retrieval_ext.graph.validity import (
    fact_of,
    intersection,
    is_dated_entity,
    period_in_words,
)
from llama_retrieval_ext.scope import Scope

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


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A sentence that a rule concludes, with its proof.

    Attributes:
        rule: The rule.
        text: The sentence.
        confidence: Product over the chained rules, in (0, 1].
        chain: Ids of the rules used, this one first.
        bindings: Node id of each variable; None for a missing optional one.
        proof: The edges that prove it.
        nodes: The nodes of the bindings and of the proof, by id.
        facts: The properties with dates that conditions test, or the sentence names.
        language: Of the sentence; empty if the context names none.
        relations: Names of relation types in that language.
    """

    rule: Rule
    text: str
    confidence: float
    chain: tuple[str, ...]
    bindings: tuple[tuple[str, str | None], ...]
    proof: tuple[Edge, ...]
    nodes: Mapping[str, GraphNode] = field(default_factory=dict, compare=False, repr=False)
    facts: tuple[Edge, ...] = field(default=(), compare=False, repr=False)
    language: str = field(default="", compare=False, repr=False)
    relations: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def start(self) -> str:
        """Id of the start node of the rule."""
        return self.bindings[0][1] or ""

    @property
    def is_whole(self) -> bool:
        """Whether every node of the proof still exists."""
        return all(end in self.nodes for edge in self.proof for end in (edge.source, edge.target))

    def name_of(self, node_id: str, *, language: str = "") -> str:
        """Return the name of a node of the conclusion; for ``en`` its ``name_en``, if it is set."""
        node = self.nodes.get(node_id)
        return node_id if node is None else node.name_in(language)

    def proof_in_words(self) -> list[str]:
        """Return each edge of the proof as text, with names in the language of the sentence."""
        return [
            f"{self.name_of(edge.source, language=self.language)} "
            f"-{self.relations.get(edge.type, edge.type)}-> "
            f"{self.name_of(edge.target, language=self.language)}{period_in_words(edge)}"
            for edge in self.proof
        ]

    @property
    def validity(self) -> dict[str, str]:
        """From when until when it holds: as long as everything that supports it."""
        return intersection((*self.proof, *self.facts))

    def to_dict(self) -> dict[str, object]:
        """Return the conclusion as JSON."""
        return {
            "rule": self.rule.id,
            "kind": self.rule.kind,
            "text": self.text,
            "priority": self.rule.priority,
            "confidence": self.confidence,
            "chain": list(self.chain),
            "bindings": dict(self.bindings),
            "proof": [list(edge.id) for edge in self.proof],
            **self.validity,
        }


def infer(
    graph: GraphBackend,
    rules: RuleSet,
    *,
    seeds: Sequence[str] | None,
    context: Mapping[str, object] | None = None,
    scope: Scope | None = None,
) -> Plan[list[Conclusion]]:
    """Return the conclusions of rules, the most important first.

    Args:
        graph: The graph to match.
        rules: The rules; each way to match is one request to the graph, and all run concurrently.
        seeds: Allowed ids of the start node of each rule; None for every node.
        context: Values of the query, for conditions. Its ``language`` selects names: for ``en`` the
            property ``name_en`` of a node, if it is set, and names of relations in the rules.
        scope: The rows that are visible.

    Returns:
        A plan for the execution drivers ``run`` and ``arun``: conclusions by priority, then
        confidence, rule and text; one per sentence and set of nodes, with the shortest proof.

    Raises:
        RuleError: A rule has too many matches.
    """
    ways = rules.variants
    patterns = [*map(attrgetter("pattern"), ways)]
    values = context or {}
    matches = yield from plan_matches(graph, patterns, seeds=seeds, context=values, scope=scope)
    nodes = yield from _nodes(graph, chain.from_iterable(matches), scope)
    dated = {
        home: {id_ for id_, node in by_id.items() if is_dated_entity(node)}
        for home, by_id in nodes.items()
    }
    best: dict[tuple[object, ...], Conclusion] = {}
    language = str(values.get(LANGUAGE_KEY) or "")
    relations = {t: names[language] for t, names in rules.relations.items() if language in names}
    for way, listed in zip(ways, matches, strict=True):
        for match in listed:
            home = match.partition
            conclusion = _conclusion(way, match, nodes[home], dated[home], (language, relations))
            key = (home, conclusion.rule.id, conclusion.text, conclusion.bindings)
            if key not in best or _strength(conclusion) < _strength(best[key]):
                best[key] = conclusion
    return sorted(best.values(), key=_order)


def _nodes(
    graph: GraphBackend, matches: Iterable[Match], scope: Scope | None
) -> Plan[dict[Partition, dict[str, GraphNode]]]:
    """Return the nodes of the matches by partition, because partitions can share ids.

    An edge of LlamaIndex's store can lead to a node of another partition.
    """
    ids: dict[Partition, set[str]] = {}
    for match in matches:
        ids.setdefault(match.partition, set()).update(match.node_ids)
    nodes: dict[Partition, dict[str, GraphNode]] = {}
    for home, inner in ids.items():
        kbs = None if home.kb_id is None else (home.kb_id,)
        principals = None if scope is None else scope.principals
        times = (None, None) if scope is None else (scope.as_of, scope.known_at)
        narrow = scope if home == Partition() else Scope(home.tenant_id, kbs, principals, *times)
        nodes[home] = yield graph.plan_nodes(sorted(inner), scope=narrow)
        if outer := inner - nodes[home].keys():
            nodes[home] |= yield graph.plan_nodes(sorted(outer), scope=scope)
    return nodes


def _conclusion(
    way: Variant,
    match: Match,
    nodes: Mapping[str, GraphNode],
    dated: Collection[str],
    wording: tuple[str, Mapping[str, str]],
) -> Conclusion:
    bound = dict(zip(way.pattern.variables, match.ids, strict=True))
    bindings = tuple((name, bound[name]) for name in way.rule.pattern.variables)
    names: dict[str, str] = {}
    properties: dict[str, Mapping[str, object]] = {}
    for name, id_ in bindings:
        if (node := nodes.get(id_ or "")) is not None:
            names[name], properties[name] = node.name_in(wording[0]), stored_properties(node)
    facts: tuple[Edge, ...] = ()
    if dated:
        tested = (id_ or "" for name, id_ in bound.items() if id_ in dated and way.tests(name))
        facts = tuple(fact_of(nodes[id_].properties) for id_ in tested)
    return Conclusion(
        way.rule,
        way.rule.text(names, properties),
        way.confidence,
        way.chain,
        bindings,
        tuple(dict.fromkeys(chain.from_iterable(match.proof))),
        {id_: nodes[id_] for id_ in match.node_ids if id_ in nodes},
        facts,
        *wording,
    )


def _strength(conclusion: Conclusion) -> tuple[object, ...]:
    """Return the sort key of proofs of one conclusion: confidence, then length, then order."""
    edges = tuple(edge.id for edge in conclusion.proof)
    return -conclusion.confidence, len(edges), edges


def _order(conclusion: Conclusion) -> tuple[object, ...]:
    rule = conclusion.rule
    ids = tuple(id_ or "" for _, id_ in conclusion.bindings)
    return rule.priority, -conclusion.confidence, rule.id, conclusion.text, ids


@dataclass(frozen=True, slots=True)
class ProcessRequirements:
    """Requirements of a process, by the names of the nodes.

    They come from conclusions of rules, by the names of the rules' variables: ``equipment``,
    ``hazard``, ``measure`` and ``quality_point``.

    Attributes:
        process: The name of the process.
        equipment: Equipment that the process uses.
        hazards: Each hazard with the measures against it; no measure is a finding.
        quality_points: Points that determine its quality.
        conclusions: Conclusions with proofs, the most important first.
    """

    process: str
    equipment: tuple[str, ...] = ()
    hazards: tuple[tuple[str, tuple[str, ...]], ...] = ()
    quality_points: tuple[str, ...] = ()
    conclusions: tuple[Conclusion, ...] = ()

    @classmethod
    def of(cls, process: str, conclusions: Iterable[Conclusion]) -> "ProcessRequirements":
        """Return the requirements from the conclusions about a process, in their order."""
        kept = tuple(conclusions)
        equipment: dict[str, None] = {}
        hazards: dict[str, dict[str, None]] = {}
        quality_points: dict[str, None] = {}
        for conclusion in kept:
            names = {name: conclusion.name_of(id_) for name, id_ in conclusion.bindings if id_}
            if "equipment" in names:
                equipment[names["equipment"]] = None
            if "hazard" in names:
                measures = hazards.setdefault(names["hazard"], {})
                measures |= {names[key]: None for key in ("measure",) if key in names}
            if "quality_point" in names:
                quality_points[names["quality_point"]] = None
        return cls(
            process,
            tuple(equipment),
            tuple((hazard, tuple(measures)) for hazard, measures in hazards.items()),
            tuple(quality_points),
            kept,
        )

    @property
    def measures(self) -> tuple[str, ...]:
        """Every measure, once."""
        return tuple(dict.fromkeys(name for _, measures in self.hazards for name in measures))

    def to_dict(self) -> dict[str, object]:
        """Return the requirements as JSON."""
        return {
            "process": self.process,
            "equipment": list(self.equipment),
            "hazards": [
                {"hazard": hazard, "measures": list(measures)} for hazard, measures in self.hazards
            ],
            "quality_points": list(self.quality_points),
            "conclusions": [conclusion.to_dict() for conclusion in self.conclusions],
        }
