"""What an index node can stand for, and how it is asked."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.schema import BaseNode, NodeWithScore, TextNode

from llama_retrieval_ext.errors import ExecutionError
from llama_retrieval_ext.execution.children import retrieval
from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit, as_hit

# What an index node stands for; None for an id that leads nowhere.
Target: TypeAlias = BaseNode | NodeWithScore | BaseRetriever | BaseQueryEngine | None
# What the answers of query engines draw on, by the id of the answer's node.
Sources: TypeAlias = dict[str, list[Hit]]


def target_hits(
    id_: str, target: Target, query: Query, *, template: str, sources: Sources
) -> Plan[list[Hit]]:
    """The plan for the hits that a target gives, within the query's scope and filters.

    Args:
        id_: What the index node calls it; the source of its hits.
        target: A plain node has no score.
        query: What it is asked.
        template: Text of the node made of a query engine's answer.
        sources: Where to note what that answer draws on.

    Raises:
        ExecutionError: A query engine answered from outside the scope or the filters.
    """
    if isinstance(target, BaseRetriever):
        found = yield from retrieval(target, query.for_child())
        return [as_hit(hit, source=id_) for hit in found]
    if isinstance(target, BaseQueryEngine):
        # A copy, as it may be written to, and without an embedding of who knows which model.
        response = yield _asked(target, replace(query.for_child(), embedding=None))
        answer = _answer(id_, response, query, template)
        sources[answer.node.node_id] = [as_hit(hit) for hit in response.source_nodes]
        return [answer]
    if target is None:
        return []
    hit = as_hit(target) if isinstance(target, NodeWithScore) else Hit(node=target)
    # Objects come from memory, not through a store's gate.
    visible = matches(query.condition, hit.node.metadata)
    return [as_hit(hit, source=id_)] if visible else []


def place(id_: str, target: Target) -> str:
    """What tells one target from another: the same id may mean something else elsewhere."""
    return f"{id_}@{id(target):x}"


def _asked(engine: BaseQueryEngine, query: Query) -> Call[Any]:  # one of LlamaIndex's responses
    # Unless it is overridden, CustomQueryEngine's only calls the blocking one, on the loop.
    blocks = (
        isinstance(engine, CustomQueryEngine)
        and type(engine).acustom_query is CustomQueryEngine.acustom_query
    )
    return Call(lambda: engine.query(query), None if blocks else lambda: engine.aquery(query))


def _answer(id_: str, response: Any, query: Query, template: str) -> Hit:  # noqa: ANN401 - as above
    sources: Sequence[NodeWithScore] = response.source_nodes
    inside = [hit for hit in sources if matches(query.condition, hit.node.metadata)]
    if query.condition is not None and (not sources or len(inside) < len(sources)):
        raise ExecutionError(
            f"the answer of {id_!r} draws on {len(sources) - len(inside)} nodes from outside the "
            "query's scope or filters, or does not say on which it draws; it was dropped"
        )
    text = template.format(query_str=query.query_str, response=response)
    node = TextNode(id_=f"{id_}#answer", text=text, metadata=response.metadata or {})
    return Hit(node=node, source=id_)
