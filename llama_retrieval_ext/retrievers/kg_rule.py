"""`KGRuleRetriever` and `KGRetriever`: rule conclusions about processes in a query."""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import ClassVar, Final, TypeAlias

from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilters

from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ConfigurationError, ScopeViolationError
from llama_retrieval_ext.execution.context import (
    note_degraded,
    note_details,
    note_hint,
    note_inquiry,
    recording,
    step,
)
from llama_retrieval_ext.execution.drivers import asynchronous, blocking
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.elements import Direction, GraphNode, Hop, Partition, is_visible
from llama_retrieval_ext.graph.entity_linking import EntityLinker
from llama_retrieval_ext.graph.open import Graph, graph_of
from llama_retrieval_ext.graph.rules.inference import Conclusion, ProcessRequirements, infer
from llama_retrieval_ext.graph.rules.matching import plan_matches
from llama_retrieval_ext.graph.rules.rule import Pattern, Where
from llama_retrieval_ext.graph.rules.rule_set import LANGUAGE_KEY, RuleSet
from llama_retrieval_ext.graph.rules.yaml import load_rules, parse_rules
from llama_retrieval_ext.hits import ordered
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, ProofEdge
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.text.normalization import language_of
from llama_retrieval_ext.wording import quoted, unknown

PROCESSES_KEY: Final = "processes"
TYPE_KEY: Final = "engineering_type"
# Engineering types of a process: these edges, or else this property.
APPLIES_TO: Final = "APPLIES_TO"
TYPES_KEY: Final = "engineering_types"
SOURCE: Final = "kg_rule"
# Kinds of conclusions, and the query words that select them.
TOPICS: Final[Mapping[str, tuple[str, ...]]] = {
    "equipment": ("equipment", "machine", "设备", "机械", "机具"),
    "hazard": ("hazard", "danger", "risk", "危险", "风险", "隐患"),
    "measure": ("measure", "prevent", "protect", "措施", "防护", "预防", "防范"),
    "quality": ("quality", "inspect", "质量", "验收", "控制点"),
    "regulation": ("regulation", "law", "法规", "规定", "条例", "依据"),
    "emergency": ("emergency", "rescue", "应急", "救援", "抢险"),
}
# Factor for the score of a conclusion whose kind the query does not select.
_OFF_TOPIC: Final = 0.5

Rules: TypeAlias = RuleSet | str | Path


class KGRuleRetriever(Retriever):
    """Retriever of sentences that rules conclude about processes or other entities in a query.

    It needs no LLM and no embedding: entities are linked by name, and rules are matched along the
    graph from these. Each hit is a sentence with its ``proof`` (the edges that support it) and the
    ``priority`` of its rule. The score is the confidence of the rule times that of the entity link;
    it is halved if the words of the query, or the name of its chapter, select another kind of
    conclusion.

    Processes can also be passed as ``Query.context["processes"]``, by name or id. The context's
    ``engineering_type`` leaves out processes that the graph links to other types only; if the query
    names no process, it selects those of the type. A process is linked to a type by an edge
    ``APPLIES_TO`` or by its property ``engineering_types``, a list of names. Conditions of rules
    read the whole context (``chapter``, …). Its ``language``, or else that of the constructor, or
    else ``zh`` or ``en`` by the script of the query, selects sentences and the names in proofs.

    Args:
        graph: A URL such as ``graph:./dir`` or ``neo4j://…``, a LlamaIndex property graph store or
            index, or an open graph.
        rules: Rules, or the path of their YAML file.
        linker: Linker of entities in the query; None for exact and similar names.
        language: Language of sentences and proofs, such as ``zh``; None for that of the query.
        top_k: Number of sentences if the query sets none; None for all.
        filters: Conditions on the metadata of a hit: ``rule``, ``kind``, ``process``,
            ``confidence``.
        scope: Visible rows; applies to every name, edge and node behind a sentence.
        name: Name in traces and ``Hit.source``.

    Raises:
        ConfigurationError: The graph or the rules are of another type.
        RuleError: The rule file cannot be read.
    """

    takes_curation: ClassVar[bool] = False

    def __init__(  # noqa: PLR0913 - the three that every retriever has, and what rules need
        self,
        graph: Graph,
        rules: Rules,
        *,
        linker: EntityLinker | None = None,
        language: str | None = None,
        top_k: int | None = None,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        name: str = SOURCE,
    ) -> None:
        super().__init__(top_k=top_k, filters=filters, scope=scope, name=name)
        advice = "pass load_rules('rules.yaml'), or the path"
        listed = load_rules(rules) if isinstance(rules, str | Path) else rules
        self.rules = of_type(listed, RuleSet, "rules", instead=advice)
        self.language = None if language is None else of_type(language, str, "language")
        self.graph = graph_of(graph)
        self.linker = EntityLinker(self.graph) if linker is None else linker
        of_type(self.linker, EntityLinker, "linker")

    @blocking
    def requirements(
        self,
        process: str,
        *,
        context: Mapping[str, object] | None = None,
        scope: Scope | None = None,
    ) -> Plan[ProcessRequirements]:
        """Return all requirements of a process, with the sentences and their proofs.

        Args:
            process: Name or id of the process, or a question that names it.
            context: Values for the conditions of rules.
            scope: Narrows the scope of the retriever.

        Raises:
            ConfigurationError: The graph has no such process.
        """
        query = self._bound(Query(process, scope=scope, context=context or {}))
        linked = yield from self._by_name([process], query)
        if not linked:
            missing = yield from self.linker.plan_unknown("process", process, scope=query.scope)
            raise ConfigurationError(f"{missing}; write its name, an alias or its id")
        first = max(linked, key=lambda id_: linked[id_])
        conclusions = yield from self._conclusions([first], query)
        nodes = yield self.graph.plan_nodes([first], scope=query.scope)
        name = nodes[first].name if first in nodes else first
        return ProcessRequirements.of(name, conclusions)

    arequirements = asynchronous(requirements)

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Link the question to entities, then apply the rules to them."""
        linked = yield from step("entity linking", self._processes(query))
        conclusions = yield from step("rules", self._conclusions([*linked], query))
        names = {c.start: c.name_of(c.start) for c in conclusions}
        processes: list[object] = [names.get(id_, id_) for id_ in linked]
        note_details(processes=processes)
        trace = recording()
        if trace is not None:
            trace.notes["entities"] = processes or ["none"]
        # The words of a query select kinds of conclusions; without such words, all kinds.
        lowered = f"{query.query_str} {query.context.get('chapter', '')}".casefold()
        kinds = {kind for kind, words in TOPICS.items() if any(map(lowered.__contains__, words))}
        hits: list[Hit] = []
        for conclusion in conclusions:
            share = 1.0 if not kinds or conclusion.rule.kind in kinds else _OFF_TOPIC
            score = conclusion.confidence * linked.get(conclusion.start, 1.0) * share
            hits.append(self._hit(conclusion, score))
        if query.condition is not None:
            hits = [hit for hit in hits if matches(query.condition, hit.node.metadata)]
        return ordered(hits)[: query.top_k]

    def _processes(self, query: Query) -> Plan[dict[str, float]]:
        """Return the ids to start from, each with its link confidence."""
        names = processes_in(query.context)
        if names:
            linked = yield from self._by_name(names, query)
        else:
            entities = yield from self.linker.plan_link(query.query_str, scope=query.scope)
            linked = {entity.node_id: entity.score for entity in entities}
        type_ = query.context.get(TYPE_KEY)
        if not (linked or names or type_):
            self.linker.note_unnamed(query.query_str, scope=query.scope)
        if not isinstance(type_, str) or not type_.strip():
            return linked
        return (yield from self._of_type(type_, linked, query))

    def _of_type(
        self, type_: str, linked: Mapping[str, float], query: Query
    ) -> Plan[dict[str, float]]:
        """Return the linked entities of a type; all processes of the type if there are none."""
        scope = query.scope
        named = yield from self._by_name([type_], query)
        types = [id_ for id_, score in named.items() if score == 1]
        others = [id_ for id_ in linked if id_ not in types]
        if not others and not processes_in(query.context):
            ids = yield from _processes_of_type(self.graph, type_, types, scope=scope)
            kept = {*ids}
            linked = dict.fromkeys(ids, 1.0)
        else:
            kept = yield from _of_type_or_any(self.graph, others, type_, types, scope=scope)
        if not kept:

            def hints() -> Plan[list[str]]:
                contents = yield self.graph.plan_contents(scope=scope)  # all of it
                targets = {edge.target for edge in contents.edges if edge.type == APPLIES_TO}
                by_node = {node.name for node in contents.nodes if node.id in targets}
                by_key = {str(value) for node in contents.nodes for value in _types_of(node)}
                names = sorted(by_node | by_key)
                return (
                    [] if type_ in names else [unknown("engineering type", type_, names, least=0)]
                )

            note_inquiry(("type", id(self.graph), type_, scope), hints, always=True)
        return {id_: score for id_, score in linked.items() if id_ in kept}

    def _by_name(self, names: Sequence[str], query: Query) -> Plan[dict[str, float]]:
        linked: dict[str, float] = {}
        by_id = yield self.graph.plan_nodes(names, scope=query.scope)
        for name in names:
            if name in by_id:
                linked[name] = 1.0
                continue
            entities = yield from self.linker.plan_link(name, scope=query.scope)
            linked |= {e.node_id: e.score for e in entities if e.score == entities[0].score}
            if not entities and name in processes_in(query.context):
                note_hint((yield from self.linker.plan_unknown("process", name, scope=query.scope)))
        return linked

    def _conclusions(self, seeds: Sequence[str], query: Query) -> Plan[list[Conclusion]]:
        if not seeds:
            return []
        context = {**query.context}
        if not context.get(LANGUAGE_KEY):
            texts = query.query_str, *processes_in(context)
            context[LANGUAGE_KEY] = self.language or language_of(*texts)
        languages = self.rules.languages
        if languages and context[LANGUAGE_KEY] not in languages:
            asked = quoted(str(context[LANGUAGE_KEY]))
            note_hint(f"the rules have sentences in {', '.join(languages)}, not in {asked}")
        conclusions = yield from infer(
            self.graph, self.rules, seeds=seeds, context=context, scope=query.scope
        )
        if query.scope is not None:
            for conclusion in conclusions:
                _check_scope(conclusion, query.scope, self.graph.engine)
        return [conclusion for conclusion in conclusions if conclusion.is_whole]

    def _hit(self, conclusion: Conclusion, score: float) -> Hit:
        """Return a conclusion as a hit; equal conclusions get equal ids."""
        rule, start = conclusion.rule, conclusion.nodes.get(conclusion.start)
        partition = Partition() if start is None else start.partition
        identity = json.dumps([*partition, rule.id, *conclusion.bindings])
        digest = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
        metadata: dict[str, object] = {
            "rule": rule.id,
            "kind": rule.kind,
            "process": conclusion.name_of(conclusion.start),
            "confidence": conclusion.confidence,
            **conclusion.validity,
            **partition.properties,
        }
        node = TextNode(
            id_=f"{rule.id}/{digest}",
            text=conclusion.text,
            metadata=metadata,
            excluded_embed_metadata_keys=[*metadata],
            excluded_llm_metadata_keys=[*metadata],
        )
        words = conclusion.proof_in_words()
        proof = [
            ProofEdge(*edge.id, text) for edge, text in zip(conclusion.proof, words, strict=True)
        ]
        return Hit(
            node=node, score=score, source=self.name, priority=rule.priority, proof=tuple(proof)
        )


class KGRetriever(KGRuleRetriever):
    """`KGRuleRetriever` with default rules for the requirements of a process.

    The rules follow the relations ``USES`` (equipment), ``HAS_HAZARD``, ``CAUSES`` (equipment to
    hazard), ``MITIGATED_BY`` (hazard to measure) and ``HAS_QUALITY_POINT``. Of a graph with other
    relations they conclude nothing, and the answer is marked degraded: write rules and use
    `KGRuleRetriever`.

    Args:
        graph: As for `KGRuleRetriever`.
        linker: Likewise.
        language: Likewise.
        top_k: Likewise.
        filters: Likewise.
        scope: Likewise.
        name: Likewise.

    Examples:
        >>> from llama_retrieval_ext.graph.elements import Edge
        >>> from llama_retrieval_ext.graph.embedded import EmbeddedGraph
        >>> graph = EmbeddedGraph(":memory:")
        >>> edges = [Edge("digging", "HAS_HAZARD", "collapse")]
        >>> edges.append(Edge("collapse", "MITIGATED_BY", "bracing"))
        >>> graph.upsert([], edges)
        >>> (hit,) = KGRetriever(graph).retrieve("What does digging require?")
        >>> hit.text
        'digging requires bracing against collapse'
        >>> [str(edge) for edge in hit.proof]
        ['digging -HAS_HAZARD-> collapse', 'collapse -MITIGATED_BY-> bracing']
        >>> KGRetriever(graph).requirements("digging").hazards
        (('collapse', ('bracing',)),)
        >>> graph.close()

    """

    def __init__(  # noqa: PLR0913 - without the rules
        self,
        graph: Graph,
        *,
        linker: EntityLinker | None = None,
        language: str | None = None,
        top_k: int | None = None,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        name: str = SOURCE,
    ) -> None:
        super().__init__(
            graph,
            process_rules(),
            linker=linker,
            language=language,
            top_k=top_k,
            filters=filters,
            scope=scope,
            name=name,
        )

    def _conclusions(self, seeds: Sequence[str], query: Query) -> Plan[list[Conclusion]]:
        conclusions = yield from super()._conclusions(seeds, query)
        if seeds and not conclusions:
            types = frozenset(t for rule in self.rules for s in rule.pattern.steps for t in s.types)
            edges = yield self.graph.plan_neighbours(seeds, Hop(types=types), scope=query.scope)
            if not any(edges.values()):
                note_degraded(
                    self.name,
                    f"no edge of {', '.join(map(repr, seeds))} has a relation that the rules of "
                    f"KGRetriever follow ({', '.join(sorted(types))}); write rules for your graph "
                    "and use KGRuleRetriever(graph, 'rules.yaml')",
                )
        return conclusions


@cache
def process_rules() -> RuleSet:
    """Return the rules for the requirements of a process."""
    file = "process_requirements.yaml"
    path = files("llama_retrieval_ext.graph.rules").joinpath(file)
    return parse_rules(path.read_text(encoding="utf-8"), file=file)


def processes_in(context: Mapping[str, object]) -> list[str]:
    """Return the processes in the context of a query."""
    processes = context.get(PROCESSES_KEY) or ()
    listed = [processes] if isinstance(processes, str) else processes
    if not isinstance(listed, Iterable) or isinstance(listed, bytes | Mapping):
        raise ConfigurationError(f"'processes' is a list of names or ids, got {processes!r}")
    names = list(dict.fromkeys(listed))
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ConfigurationError(f"'processes' is a list of names or ids, got {name!r} in it")
    return names


def _check_scope(conclusion: Conclusion, scope: Scope | None, engine: str) -> None:
    """Raise if an edge or node behind a sentence is outside the scope."""
    nodes, edges = conclusion.nodes.values(), conclusion.proof
    outside = [node.id for node in nodes if not is_visible(node.properties, scope)]
    outside += [str(e) for e in edges if not is_visible(e.properties, scope, is_edge=True)]
    if outside:
        raise ScopeViolationError(
            f"the {engine} graph returned rows from outside the query's scope to rule "
            f"{conclusion.rule.id!r}; nothing of it was used. This is a defect of the graph",
            tuple(outside),
        )


def _processes_of_type(
    graph: GraphBackend, name: str, type_ids: Sequence[str], *, scope: Scope | None
) -> Plan[list[str]]:
    """Return the ids of the processes that a graph links to an engineering type, sorted.

    Properties are read only if no edge leads to the type: that reads every node.
    """
    hop = Hop(Direction.IN, frozenset({APPLIES_TO}))
    edges = yield graph.plan_neighbours(type_ids, hop, scope=scope)
    ids = {edge.source for group in edges.values() for edge in group}
    if not ids:
        where = Where("process", TYPES_KEY, FilterOperator.CONTAINS, name)
        pattern = Pattern("process", where=(where,))
        (matches,) = yield from plan_matches(graph, [pattern], seeds=None, context={}, scope=scope)
        ids = {match.ids[0] or "" for match in matches}
    return sorted(ids)


def _of_type_or_any(
    graph: GraphBackend,
    ids: Sequence[str],
    name: str,
    type_ids: Collection[str],
    *,
    scope: Scope | None,
) -> Plan[set[str]]:
    """Return the ids of the nodes that belong to an engineering type, or to none in particular."""
    nodes = yield graph.plan_nodes(ids, scope=scope)
    hop = Hop(Direction.OUT, frozenset({APPLIES_TO}))
    edges = yield graph.plan_neighbours(ids, hop, scope=scope)
    kept: set[str] = set()
    for id_, node in nodes.items():
        linked = {edge.target for edge in edges.get(id_, ())}
        listed = _types_of(node)
        if linked & set(type_ids) or name in listed or not (linked or listed):
            kept.add(id_)
    return kept


def _types_of(node: GraphNode) -> Sequence[object]:
    value = node.properties.get(TYPES_KEY) or ()
    return value if isinstance(value, list | tuple) else (value,)
