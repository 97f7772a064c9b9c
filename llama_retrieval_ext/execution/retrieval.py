"""Calls of retrievers and embedding models: checked results, and one embedding per text."""

from functools import lru_cache, partial
from inspect import unwrap
from math import isfinite

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding, mean_agg
from llama_index.core.indices.vector_store.retrievers import VectorIndexRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext.checks import is_vector, of_type
from llama_retrieval_ext.errors import ExecutionError
from llama_retrieval_ext.execution.context import call, current_context, note_degraded, recording
from llama_retrieval_ext.execution.drivers import (
    awaited_or_in_thread,
    awaits,
    blocking_or_awaited,
    in_thread,
)
from llama_retrieval_ext.execution.plan import Call, Plan, Task, Together
from llama_retrieval_ext.execution.running import reporting
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.hits import as_hit, finite_score
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, Origin, with_origin


def embed(query: Query, model: BaseEmbedding) -> Plan[list[float]]:
    """Return the plan for the embedding of a query."""
    if query.embedding is not None:
        return query.embedding
    texts = query.embedding_strs
    if len(texts) == 1:
        return (yield from embed_text(texts[0], model))
    outcomes = yield Together([Task("embedding", embed_text(text, model)) for text in texts])
    return mean_agg([outcome.result() for outcome in outcomes])


def embed_text(text: str, model: BaseEmbedding) -> Plan[list[float]]:
    """Return the plan for the query embedding of a text, shared by all legs with this model."""

    def blocking() -> tuple[list[float], BaseEmbedding]:
        embedded = partial(model.get_query_embedding, text)
        vector = blocking_or_awaited(embedded, partial(model.aget_query_embedding, text))
        return checked_embedding(model, vector), model

    async def awaited() -> tuple[list[float], BaseEmbedding]:
        return checked_embedding(model, await model.aget_query_embedding(text)), model

    session = current_context().session
    # Models with the same name may differ. The value holds the model: no other gets its id.
    key = (id(model), text)
    trace = recording()
    if trace is not None and session.embeddings.has(key):
        trace.notes["cache_hits"] = ["query embedding"]
    is_async = _awaits(type(model)._aget_query_embedding)  # noqa: SLF001 - it has no public name
    effect = Call(blocking, awaited if is_async else None)
    vector, _ = yield from session.embeddings.get(key, effect)
    return vector


_awaits = lru_cache(maxsize=128)(awaits)


def checked_embedding(model: BaseEmbedding, vector: list[float]) -> list[float]:
    """Return an embedding that a model made, or raise `ExecutionError`: the model failed."""
    if not is_vector(vector):
        raise ExecutionError(
            f"{type(model).__name__} gave an embedding that is empty or has values that are no "
            "finite numbers"
        )
    return vector


def embeds_async(model: BaseEmbedding) -> bool:
    """Return whether the async method of a model leaves the event loop free."""
    return _awaits(type(model)._aget_query_embedding)  # noqa: SLF001 - it has no public name


class HonoursQuery:
    """Base of retrievers that apply a query's filters, scope and ``top_k``."""

    def answer(self, query: Query) -> Plan[list[NodeWithScore]]:
        """Return the plan for the ranking of a query."""
        raise NotImplementedError


def check_retriever(retriever: BaseRetriever, what: str) -> BaseRetriever:
    """Return the argument if it is a retriever; otherwise raise."""
    instead = "pass a LlamaIndex retriever; an index has as_retriever()"
    return of_type(retriever, BaseRetriever, what, instead=instead)


def retrieval(
    retriever: BaseRetriever, query: Query, *, top_k: int | None = None
) -> Plan[list[NodeWithScore]]:
    """Return the plan that calls a retriever.

    A retriever of another package does not apply scope and filters: its hits are checked here;
    those outside are dropped and reported as degraded. If its async methods do not work, as with a
    store that has only a blocking client, it runs in a thread.
    """
    child = query.for_child(top_k=top_k)
    plan = (
        retriever.answer(child)
        if isinstance(retriever, HonoursQuery)
        else _foreign_retrieval(retriever, child)
    )
    shared = current_context().session.shared_rankings
    return plan if shared is None else shared.ranking(retriever, child, plan)


def hits_of(
    retriever: BaseRetriever, query: Query, *, top_k: int | None = None, source: str = ""
) -> Plan[list[Hit]]:
    """Return `retrieval` as new `Hit`s; ``source`` is for hits without one."""
    ranking = yield from retrieval(retriever, query, top_k=top_k)
    return [as_hit(hit, source=source) for hit in ranking]


def _foreign_retrieval(retriever: BaseRetriever, query: Query) -> Plan[list[NodeWithScore]]:
    embedding = query.embedding
    if isinstance(retriever, VectorIndexRetriever):
        embedding = yield from _shared_embedding(retriever, query)

    effect = _call_of(retriever, query, embedding)
    if current_context().on_partial is None:
        ranking: list[NodeWithScore] = yield effect
    else:  # its parts do not apply the scope, and several may report at once
        ranking = yield from reporting(call(effect), None)
    for hit in ranking:
        if hit.score is not None and not isfinite(hit.score):  # stages handle missing scores
            finite_score(hit.node.node_id, hit.score)
    seen = ranking
    if query.condition is not None:
        seen = visible(ranking, query, type(retriever).__name__)
    if isinstance(retriever, VectorIndexRetriever):
        origin = Origin(retriever._vector_store, retriever._embed_model)  # noqa: SLF001 - as below
        return [with_origin(as_hit(hit), origin) for hit in seen]
    return seen


def _call_of(
    retriever: BaseRetriever, query: Query, embedding: list[float] | None
) -> Call[list[NodeWithScore]]:
    """Return the call of a retriever of another package, async if that does not block."""
    # LlamaIndex's vector retriever changes its argument: each call gets a copy.
    texts = query.query_str, query.image_path, query.custom_embedding_strs
    bundle = partial(QueryBundle, *texts, embedding)

    async def attempt() -> list[NodeWithScore]:
        return await retriever.aretrieve(bundle())

    blocking = partial(blocking_or_awaited, partial(retriever.retrieve, bundle()), attempt)

    async def awaited() -> list[NodeWithScore]:
        if not _has_async(retriever):
            return await in_thread(blocking)
        return await awaited_or_in_thread(attempt, lambda: retriever.retrieve(bundle()))

    return Call(blocking, awaited)


def _shared_embedding(retriever: VectorIndexRetriever, query: Query) -> Plan[list[float] | None]:
    """Return the embedding for LlamaIndex's vector retriever, shared by legs with its model."""
    if (
        query.embedding is not None or not query.embedding_strs or not retriever._needs_embedding()  # noqa: SLF001 - it has no public way to say so
    ):
        return query.embedding
    for name in ("_retrieve", "_aretrieve"):
        # A subclass may embed other text. Instrumentation creates a new wrapper at each access.
        method = getattr(type(retriever), name)
        if unwrap(method) is not unwrap(getattr(VectorIndexRetriever, name)):
            return query.embedding
    return (yield from embed(query, retriever._embed_model))  # noqa: SLF001 - it has no public name


def _has_async(retriever: BaseRetriever) -> bool:
    if isinstance(retriever, VectorIndexRetriever):
        store = retriever._vector_store  # noqa: SLF001 - it has no public name
        if not awaits(store.aquery):
            return False
    return awaits(retriever._aretrieve)  # noqa: SLF001 - it has no public name


def visible(hits: list[NodeWithScore], query: Query, name: str) -> list[NodeWithScore]:
    """Return the hits within the query's scope and filters; dropped hits degrade the answer."""
    condition = query.condition
    seen = [hit for hit in hits if matches(condition, hit.node.metadata)]
    if len(seen) < len(hits):
        note_degraded(
            name,
            f"{len(hits) - len(seen)} of {len(hits)} hits were outside the query's scope or "
            f"filters, which {name} does not know; they were dropped",
        )
    return seen
