"""Calls a child retriever: ours with the whole query, a foreign one with its text."""

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.indices.vector_store import VectorIndexRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext.arguments import of_type
from llama_retrieval_ext.execution.degraded import note_degraded
from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.execution.partials import heard
from llama_retrieval_ext.execution.steps import call
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Origin, as_hit, finite_score, with_origin


class HonoursQuery:
    """Marks a retriever that honours a query's filters, scope and number of hits."""


def check_retriever(retriever: BaseRetriever, what: str) -> BaseRetriever:
    """The same retriever, if it is one.

    Args:
        retriever: Ours or any other LlamaIndex retriever.
        what: What the argument is called.

    Raises:
        ConfigurationError: It is something else.
    """
    instead = "pass a LlamaIndex retriever; an index has as_retriever()"
    return of_type(retriever, BaseRetriever, what, instead=instead)


def retrieval(
    retriever: BaseRetriever, query: Query, *, top_k: int | None = None
) -> Plan[list[NodeWithScore]]:
    """The plan that asks a retriever.

    A foreign retriever knows nothing of scope and filters: what it returns is checked here, and
    hits that do not belong are dropped and reported as degraded.

    Args:
        retriever: Ours or any other LlamaIndex retriever.
        query: What to ask it.
        top_k: How many hits to ask for; a foreign retriever always gives its own number.

    Raises:
        ScoreError: A foreign retriever gives a score that is no finite number.
    """
    if isinstance(retriever, HonoursQuery):
        hits: list[NodeWithScore] = yield _call(retriever, query.for_child(top_k=top_k))
        return hits
    # A copy of its own: LlamaIndex's vector retriever writes its embedding into the bundle it gets.
    bundle = QueryBundle(
        query.query_str, query.image_path, query.custom_embedding_strs, query.embedding
    )
    # Not heard on its way: its parts know no scope either, and several of them may talk at once.
    foreign = yield from heard(call(_call(retriever, bundle)), None)
    for hit in foreign:
        if hit.score is not None:  # some give none; what becomes of that is the stages' affair
            finite_score(hit.node.node_id, hit.score)
    seen = visible(foreign, query, type(retriever).__name__)
    if isinstance(retriever, VectorIndexRetriever):
        origin = Origin(retriever._vector_store, retriever._embed_model)  # noqa: SLF001 - no public way
        return [with_origin(as_hit(hit), origin) for hit in seen]
    return seen


def _call(retriever: BaseRetriever, bundle: QueryBundle) -> Call[list[NodeWithScore]]:
    # BaseRetriever's own _aretrieve only calls _retrieve, on the loop.
    is_async = type(retriever)._aretrieve is not BaseRetriever._aretrieve  # noqa: SLF001
    return Call(
        lambda: retriever.retrieve(bundle),
        (lambda: retriever.aretrieve(bundle)) if is_async else None,
    )


def visible(hits: list[NodeWithScore], query: Query, name: str) -> list[NodeWithScore]:
    """The hits within the query's scope and filters; what is dropped degrades the answer.

    Args:
        hits: From something that knows neither.
        query: What they answer.
        name: Who found them.
    """
    condition = query.condition
    if condition is None:
        return hits
    seen = [hit for hit in hits if matches(condition, hit.node.metadata)]
    if len(seen) < len(hits):
        note_degraded(
            name,
            f"{len(hits) - len(seen)} of {len(hits)} hits were outside the query's scope or "
            f"filters, which {name} does not know; they were dropped",
        )
    return seen
