"""The conclusions of rules from a graph, each with its proof; by subject for one process."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.elements import Edge, GraphNode, Partition
from llama_retrieval_ext.graph.rules.matching import plan_matches, stored_properties
from llama_retrieval_ext.graph.rules.rule import Match, Rule
from llama_retrieval_ext.graph.rules.rule_set import LANGUAGE_KEY, RuleSet, Variant
from llama_retrieval_ext.graph.validity import (
    fact_of,
    intersection,
    is_dated_entity,
    period_in_words,
)
from llama_retrieval_ext.scope import Scope


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
