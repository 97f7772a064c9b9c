"""`infer`: what rules conclude from a graph, each conclusion with its proof."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_retrieval_ext.execution.context import call
from llama_retrieval_ext.execution.plan import Plan, Task, Together
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.rules.chaining import Variant, variants
from llama_retrieval_ext.graph.rules.matching import Match, find_matches, stored_properties
from llama_retrieval_ext.graph.rules.rule import Rule, RuleSet
from llama_retrieval_ext.query import Scope


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A sentence that a rule concludes, and why.

    Attributes:
        rule: The rule.
        text: The sentence.
        confidence: Of the rule and those that it is chained with, in (0, 1].
        chain: Ids of the rules that were used, this one first.
        bindings: Node of each variable; None for an optional one that is not there.
        proof: The edges that make it true.
    """

    rule: Rule
    text: str
    confidence: float
    chain: tuple[str, ...]
    bindings: tuple[tuple[str, str | None], ...]
    proof: tuple[Edge, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """Optional variables that are bound to nothing: a finding, not a failure."""
        return tuple(name for name, node_id in self.bindings if node_id is None)


def infer(
    graph: GraphBackend,
    rules: RuleSet,
    *,
    seeds: Sequence[str] | None,
    context: Mapping[str, object] | None = None,
    scope: Scope | None = None,
) -> Plan[list[Conclusion]]:
    """Return what rules conclude, the most important first.

    Args:
        graph: What the rules are matched against.
        rules: The rules; each way to match is one request to the graph, and they run together.
        seeds: Ids that the start of each rule is one of; None for every node.
        context: Of the query, for conditions.
        scope: Who asks.

    Returns:
        A plan for the execution drivers ``run`` and ``arun``: conclusions by priority, then
        confidence, rule and text; one for each sentence with other nodes, with the shortest proof.

    Raises:
        RuleError: A rule has too many matches.
    """
    ways = [way for rule in rules for way in variants(rule, rules)]
    tasks = [
        Task(
            way.rule.id,
            call(find_matches(graph, way.pattern, seeds=seeds, context=context or {}, scope=scope)),
        )
        for way in ways
    ]
    outcomes = yield Together(tasks)
    found = [
        (way, match) for way, out in zip(ways, outcomes, strict=True) for match in out.result()
    ]
    ids = {id_ for _, match in found for id_ in match.ids if id_ is not None}
    nodes = yield graph.nodes(sorted(ids), scope=scope)
    best: dict[tuple[object, ...], Conclusion] = {}
    for conclusion in (_conclusion(way, match, nodes) for way, match in found):
        key = (conclusion.rule.id, conclusion.text, conclusion.bindings)
        if key not in best or _strength(conclusion) < _strength(best[key]):
            best[key] = conclusion
    return sorted(best.values(), key=_order)


def _conclusion(way: Variant, match: Match, nodes: Mapping[str, GraphNode]) -> Conclusion:
    bound = dict(zip(way.pattern.variables, match.ids, strict=True))
    own = {name: bound[name] for name in way.rule.pattern.variables}
    present = {name: nodes[id_] for name, id_ in own.items() if id_ is not None and id_ in nodes}
    text = way.rule.text(
        {name: node.name for name, node in present.items()},
        {name: stored_properties(node) for name, node in present.items()},
    )
    edges = dict.fromkeys(edge for step in match.proof for edge in step)
    return Conclusion(way.rule, text, way.confidence, way.chain, tuple(own.items()), tuple(edges))


def _strength(conclusion: Conclusion) -> tuple[object, ...]:
    """Sort key of proofs of the same: the most certain, the shortest, the first."""
    edges = tuple(edge.id for edge in conclusion.proof)
    return -conclusion.confidence, len(edges), edges


def _order(conclusion: Conclusion) -> tuple[object, ...]:
    rule = conclusion.rule
    ids = tuple(id_ or "" for _, id_ in conclusion.bindings)
    return rule.priority, -conclusion.confidence, rule.id, conclusion.text, ids
