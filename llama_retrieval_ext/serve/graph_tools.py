"""MCP tools over a graph: neighbours of an entity, and conclusions of rules."""

import asyncio
from typing import Annotated, Final

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from llama_retrieval_ext.execution.drivers import arun
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.elements import GraphNode, Hop
from llama_retrieval_ext.graph.entity_linking import EntityLinker
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.kg_rule import Rules
from llama_retrieval_ext.serve.mcp_tools import Bound, Facts, shown, tool_of

_LIMIT: Final = 50
_MAX_LIMIT: Final = 200
_SHOWN: Final = 100


def graph_tools(bound: Bound, graph: GraphBackend, *, rules: Rules | None) -> list[Tool]:
    """Return ``neighbours`` and ``rules``.

    Args:
        bound: The knowledge base, the scope of every call, and its limits.
        graph: The graph to read.
        rules: Inference rules; None for the rules of `KGRetriever`.
    """
    linker = EntityLinker(graph)
    concluding = bound.kb.retriever("kg_rule", linker=linker, rules=rules)

    async def neighbours(
        entity: Annotated[str, Field(min_length=1, description="Its name or id.")],
        limit: Annotated[int, Field(ge=1, le=_MAX_LIMIT, description="Most relations.")] = _LIMIT,
    ) -> Facts:
        """List the relations of an entity of the knowledge graph, the strongest first."""
        plan = _neighbours(bound, graph, linker, entity, limit)
        return await asyncio.wait_for(arun(plan), bound.limits.timeout_s)

    async def conclude(
        question: Annotated[str, Field(min_length=1, description="It names the entities.")],
        top_k: Annotated[int, Field(ge=1, le=bound.limits.max_top_k)] = min(
            _LIMIT, bound.limits.max_top_k
        ),
    ) -> Facts:
        """List what rules conclude from the knowledge graph for a question, each with its proof."""
        timeout_s = bound.limits.timeout_s
        query = Query(question, scope=bound.scope, top_k=top_k, timeout_s=timeout_s)
        found = await concluding.asearch(query)
        return {"conclusions": [_conclusion(hit) for hit in found.hits]}

    return [tool_of(neighbours), tool_of(conclude, name="rules")]


def _neighbours(
    bound: Bound, graph: GraphBackend, linker: EntityLinker, entity: str, limit: int
) -> Plan[Facts]:
    node_id = entity
    if not (yield graph.nodes([entity], scope=bound.scope)):
        linked = yield from linker.link(entity, scope=bound.scope, limit=1)
        if not linked:
            raise ToolError(f"the graph has no entity {entity!r}")
        node_id = linked[0].node_id
    edges = (yield graph.neighbours([node_id], Hop(fan_out=limit), scope=bound.scope))[node_id]
    ends = {end for edge in edges for end in (edge.source, edge.target)}
    nodes = yield graph.nodes(sorted({node_id, *ends}), scope=bound.scope)
    relations = [
        {"from": _named(nodes[e.source]), "relation": e.type, "to": _named(nodes[e.target])}
        for e in edges
        if e.source in nodes and e.target in nodes
    ]
    start = nodes[node_id]
    return {
        "entity": _named(start),
        "label": start.label,
        "properties": shown(dict(start.properties)),
        "relations": relations,
    }


def _named(node: GraphNode) -> str:
    return node.name if node.text is None else f"passage {node.text[:_SHOWN]!r}"


def _conclusion(hit: Hit) -> Facts:
    return {
        "text": hit.text,
        "rule": hit.node.metadata.get("rule"),
        "confidence": hit.score,
        "proof": [edge.text for edge in hit.proof],
    }
