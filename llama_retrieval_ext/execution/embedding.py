"""Query embeddings, computed once per model and text and shared by all legs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from llama_index.core.base.embeddings.base import BaseEmbedding, mean_agg

from llama_retrieval_ext.execution.context import Session, current_context, recording
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.query import Query

_WORTH_A_BATCH = 2


def embed(query: Query, model: BaseEmbedding) -> Plan[list[float]]:
    """Return the plan for the embedding of a query."""
    if query.embedding is not None:
        return query.embedding
    texts = query.embedding_strs
    if len(texts) == 1:
        return (yield from embed_text(texts[0], model))
    outcomes = yield Together([Task("embedding", embed_text(text, model)) for text in texts])
    return mean_agg([outcome.result() for outcome in outcomes])


@runtime_checkable
class EmbedsQueriesTogether(Protocol):
    """Embedding model that embeds several queries in one call; LlamaIndex's models cannot."""

    def get_query_embedding_batch(self, queries: Sequence[str]) -> list[list[float]]:
        """Return one embedding per query, in order, each equal to ``get_query_embedding``."""
        ...

    async def aget_query_embedding_batch(self, queries: Sequence[str]) -> list[list[float]]:
        """Return the same without blocking the event loop."""
        ...


def prefetch_embeddings(queries: Iterable[Query], model: BaseEmbedding) -> Plan[set[str]]:
    """Return a plan that embeds the texts of several queries, once each, for `embed`.

    The result of the plan is the set of texts that could not be embedded.

    An `EmbedsQueriesTogether` model embeds all texts in one call. With other models, a text that
    fails raises its error once in each query that needs it, without another call.
    """
    texts = Counter(
        text for query in queries if query.embedding is None for text in query.embedding_strs
    )
    session = current_context().session
    if len(texts) >= _WORTH_A_BATCH and isinstance(model, EmbedsQueriesTogether):
        yield from _embed_batch(tuple(texts), model, session)
        return set()
    tasks = [Task("embedding", embed_text(text, model)) for text in texts]
    outcomes: list[Outcome[list[float]]] = yield Together(tasks)
    failed: set[str] = set()
    for (text, times), outcome in zip(texts.items(), outcomes, strict=True):
        if isinstance(outcome.error, Exception):
            failed.add(text)
            known = session.unreached.setdefault((id(model), text), [])
            known.extend([outcome.error] * times)
    return failed


def _embed_batch(
    texts: tuple[str, ...], model: EmbedsQueriesTogether, session: Session
) -> Plan[None]:
    together = Call(
        lambda: model.get_query_embedding_batch(texts),
        lambda: model.aget_query_embedding_batch(texts),
    )
    known = session.embeddings
    vectors = yield from known.get((id(model), texts), lambda: together)
    for text, vector in zip(texts, vectors, strict=True):
        known.keep((id(model), text), vector)


def embed_text(text: str, model: BaseEmbedding) -> Plan[list[float]]:
    """Return the plan for the query embedding of a text, shared by all legs with this model."""
    call = Call(lambda: model.get_query_embedding(text), lambda: model.aget_query_embedding(text))
    session = current_context().session
    key = (id(model), text)  # not its name: models with the same name may differ
    error = session.take_unreached(key)
    if error is not None:
        raise error
    trace = recording()
    if trace is not None and session.embeddings.has(key):
        trace.notes["cache_hits"] = ["query embedding"]
    return (yield from session.embeddings.get(key, lambda: call))
