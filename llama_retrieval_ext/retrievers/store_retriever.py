"""`StoreRetriever`: base of retrievers over one store, its gate, and the fields of keyword search.

The gate stands behind every search of a store: each hit is checked once more, in plain Python.
"""

import logging
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Final, Self, TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterOperator,
    MetadataFilters,
)

from llama_retrieval_ext.errors import ConfigurationError, ScopeViolationError
from llama_retrieval_ext.execution.context import (
    ScopeViolationEvent,
    call,
    current_context,
    emit,
    note_degraded,
    note_hint,
    note_inquiry,
    recording,
    step,
)
from llama_retrieval_ext.execution.hints import Metadata, Passages, note_keys
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.retrieval import embed
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.parameters import Count
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.why_not import FieldWords
from llama_retrieval_ext.query import Query, described_binding
from llama_retrieval_ext.results import Hit, Origin, with_origin
from llama_retrieval_ext.schema import EVERYTHING, keys_of
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.stores.encoding.node_json import assembled
from llama_retrieval_ext.stores.engine.backend import Backend, Candidate, Search, unique
from llama_retrieval_ext.stores.engine.search import EngineBackend
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.stores.generic import nodes_by_id
from llama_retrieval_ext.stores.open import Storage, source_of
from llama_retrieval_ext.text.highlighting import Question, matched_spans
from llama_retrieval_ext.wording import counted, quoted

_logger = logging.getLogger(__name__)
# Default values of a hit's fields. Hits skip validation, which would double their time.
_HIT: Final = {name: field.default for name, field in Hit.model_fields.items()}

# Returns the plan for the hits of a query, with its ``top_k``.
Answering: TypeAlias = Callable[[Query], Plan[list[Hit]]]
# Returns the call of a search in the store.
Searching: TypeAlias = Callable[[Search], Call[list[Candidate]]]
# Neighbouring hits of one document often come in pairs, seldom in larger groups.
_FIRST: Final = 2
SYNONYM_WEIGHT: Final = 0.5
GROWTH: Final = 4


def _within(most: int | None, depth: int, top_k: int) -> int:
    """Return the depth, at most that of the engine, but not below ``top_k``."""
    return depth if most is None else min(depth, max(most, top_k))


# Nodes of a field whose scores are read to explain those of the hits.
_EXPLAINED: Final = 1_000


class StoreRetriever(Retriever):
    """Base class of retrievers over one store."""

    collapse: Collapse | None = None

    def __init__(
        self,
        store: Storage,
        embed_model: BaseEmbedding | None,
        *,
        top_k: Count,
        filters: MetadataFilters | None,
        scope: Scope | None,
        name: str,
    ) -> None:
        super().__init__(top_k=top_k, filters=filters, scope=scope, name=name)
        self.source = source_of(store)
        self.backend = self.source.backend
        if isinstance(self.backend, EngineBackend):
            self.requires_scope = self.backend.requires_scope
            self.requires_principals = self.backend.requires_principals
            self.keeps_history = self.backend.keeps_history
        self.embed_model = self.source.embed_model if embed_model is None else embed_model
        self.object_map = dict(self.source.objects)

    def clone(self) -> Self:
        """Return a copy with state of its own; store, model and arguments are shared."""
        made = copy(self)
        made.callback_manager = CallbackManager()
        made.object_map = dict(self.object_map)
        return made

    @property
    def _embeds(self) -> bool:
        """Whether queries need an embedding."""
        return True

    def _hits(self, query: Query, search: Searching) -> Plan[list[Hit]]:
        """Return the plan for the hits of one search of the store."""

        def hits(asked: Query) -> Plan[list[Hit]]:
            return step("search", self._checked(call(search(search_of(asked))), asked))

        return self._collapsed(hits, query)

    def _checked(
        self, candidates: Plan[list[Candidate]], query: Query, *pushed_down: str
    ) -> Plan[list[Hit]]:
        """Return the hits of an engine search that satisfy the condition of the query."""
        answer = yield from candidates
        self._note_pushdown(query, *pushed_down)
        return self._gated(answer, query)

    def _note_pushdown(self, query: Query, *what: str) -> None:
        trace = recording()
        if trace is not None:
            trace.notes["engine"] = self.backend.engine
            if self._embeds and isinstance(self.backend, EngineBackend):
                used = self.backend.index_used(exact=query.exact)
                trace.notes |= {} if used is None else {"index": used}
            if query.synonyms:
                what = (*what, f"synonyms {', '.join(query.synonyms)} (weight {SYNONYM_WEIGHT})")
            trace.notes["pushed_down"] = [*what, *described_binding(query)]

    def read_node(self, node_id: str) -> Plan[BaseNode | None]:
        """Return the node from the store, ignoring scope."""
        nodes = yield from call(nodes_by_id(self.backend, [node_id]))
        return nodes.get(node_id)

    def _collapsed(self, hits: Answering, query: Query) -> Plan[list[Hit]]:
        """Return a collapsed ranking, and note what to look at if it is empty."""
        ranking = yield from (
            hits(query) if self.collapse is None else self._collapse(self.collapse, hits, query)
        )
        if query.filter is not None:
            note_keys(query, [hit.node.metadata for hit in ranking], lambda: self._passages(query))
        if not ranking:
            # A vector search finds every node that it may.
            key = ("filters", id(self.backend.store), query.condition)
            note_inquiry(key, lambda: self._passages(query).hints(query), always=self._embeds)
        return ranking

    def _passages(self, query: Query) -> Passages:
        """Return what hints look at: the passages that may be found."""
        operators = self.backend.features.operators
        is_exact = operators is not None and FilterOperator.IS_EMPTY in operators
        return Passages(partial(self._metadata, query), is_exact, not self._embeds)

    def _metadata(
        self, query: Query, condition: Condition | None, limit: int
    ) -> Plan[list[Metadata]]:
        """Return the metadata of nodes that satisfy a condition, as a vector search finds them."""
        dimension = getattr(self.backend.store, "dimension", None)
        probe = [1.0, *[0.0] * (dimension - 1)] if dimension else (yield from self._embed(query))
        search = Search(limit, condition, query.scope, exact=self.backend.features.exact)
        candidates = yield from call(self.backend.dense(probe, search))
        return [candidate.node.metadata for candidate in candidates]

    def _collapse(self, collapse: Collapse, hits: Answering, query: Query) -> Plan[list[Hit]]:
        """Return a collapsed ranking; request more hits until enough are left."""
        most, top_k = self.backend.features.most_hits, query.top_k or 1
        depth = _within(most, _FIRST * top_k, top_k)
        while True:
            ranking = yield from hits(query.but(top_k=depth))
            kept = collapse.refine(query, ranking)
            if len(kept) >= top_k or len(ranking) < depth:
                return kept[:top_k]
            if most is not None and depth >= most:
                note_degraded(
                    self.name,
                    f"{collapse!r}: there are only {counted(len(kept), 'hit')} instead of {top_k} "
                    f"from the first {depth}, and the engine returns no more at once",
                )
                return kept
            depth = _within(most, GROWTH * depth, top_k)

    def _gated(self, candidates: Sequence[Candidate], query: Query) -> list[Hit]:
        store = self.backend.store
        tokenizer = getattr(store, "tokenizer", None)
        return checked_hits(
            candidates,
            query.condition,
            store=type(store).__name__,
            drop_violations=self.backend.drop_violations,
            source=self.name,
            origin=origin_in(self.backend, self.embed_model),
            question=Question(query.query_str, tokenizer, query.synonyms),
        )

    def _embed(self, query: Query) -> Plan[list[float]]:
        if query.embedding is not None:
            return query.embedding
        if self.embed_model is None:
            raise self._no_model_error()
        return (yield from embed(query, self.embed_model))

    def _no_model_error(self) -> ConfigurationError:
        return ConfigurationError(
            f"{type(self).__name__} has no embedding model; pass embed_model= with the model "
            "that the store was filled with, or queries that carry their embedding"
        )


def origin_in(backend: Backend, embed_model: BaseEmbedding | None) -> Origin:
    """Return the source of stored data beside the text of the hits of a backend, for stages."""
    nodes = backend.nodes if isinstance(backend, EngineBackend) else None
    return Origin(backend.store, embed_model, nodes)


def search_of(query: Query, *, top_k: int | None = None) -> Search:
    """Return the parameters of a search for a backend."""
    top_k = top_k or query.top_k or 1
    return Search(top_k, query.condition, query.scope, query.exact, query.fields)


def keyword_text(query: Query) -> tuple[str, float]:
    """Return the text of a keyword search, and the factor for its scores.

    Synonyms have half of the weight of the words of the query: these are there twice, because all
    engines multiply a term's score by its count in the query.

    Source:
        The weight: Voorhees, "Query expansion using lexical-semantic relations", SIGIR 1994,
        https://doi.org/10.1007/978-1-4471-2099-5_7, where related words helped most with 0.5.
    """
    if not query.synonyms:
        return query.query_str, 1.0
    return " ".join([query.query_str, query.query_str, *query.synonyms]), SYNONYM_WEIGHT


def checked_hits(  # noqa: PLR0913 - what a message names, and what hits carry
    candidates: Sequence[Candidate],
    condition: Condition | None,
    *,
    store: str,
    drop_violations: bool,
    source: str,
    origin: Origin | None = None,
    question: Question | None = None,
) -> list[Hit]:
    """Return hits of the candidates that satisfy a condition, evaluated again in plain Python.

    Engines and their integrations have bugs; this check keeps hits of other tenants out anyway.
    A hit that violates it raises `ScopeViolationError`, or is dropped with ``drop_violations``.
    """
    hits: list[Hit] = []
    for candidate in unique(candidates):
        fields = {"node": candidate.node, "score": candidate.score, "source": source}
        hit = assembled(Hit, {**_HIT, **fields, "contributions": candidate.contributions})
        hits.append(with_origin(hit, origin, question))
    if condition is None:
        return hits
    dropped = tuple(hit.node_id for hit in hits if not matches(condition, hit.node.metadata))
    if not dropped:
        return hits
    violations, returned = len(dropped), len(hits)
    emit(ScopeViolationEvent(store=store, source=source, violations=violations, returned=returned))
    message = (
        f"{store} returned {len(dropped)} of {len(hits)} hits from outside the query's scope or "
        "filters"
    )
    named = f"{message}: {', '.join(dropped[:5])}; they were dropped"
    if not drop_violations:
        raise ScopeViolationError(
            f"{named}. This is a defect of the store or its integration; to get the other hits all "
            "the same, give its backend drop_violations=True",
            dropped,
        )
    # Ids go to the log only: the caller may not be allowed to see them.
    _logger.warning(named)
    note_degraded(source, f"{message}; they were dropped")
    return [hit for hit in hits if hit.node_id not in dropped]


def check_fields(query: Query, store: BasePydanticVectorStore) -> None:
    """Raise `ConfigurationError` if a query weighs fields that a store does not search."""
    current_context().session.weighs_fields = True
    if not isinstance(store, EngineStore):
        raise ConfigurationError(
            f"{type(store).__name__} has no fields to weigh; leave fields out, or use a knowledge "
            "base, or a store opened by URL"
        )
    store.field_schema.weights(query.fields)


def note_fields(
    query: Query, hits: Sequence[Hit], backend: Backend, passages: Callable[[], Passages]
) -> Plan[None]:
    """Note fields that are not indexed, or in no passage, and in `explain` what each gave."""
    store = backend.store
    if not isinstance(store, EngineStore):
        return
    schema = store.field_schema
    if unindexed := store.unindexed:
        missing = [quoted(name) for name in unindexed if name in schema.weights(query.fields)]
        if missing:
            note_hint(
                f"not searched, since they are not indexed: {', '.join(missing)}; "
                "call index_fields() of the knowledge base"
            )
    if query.fields is not None or not (hits or schema.is_default):
        keys = keys_of(schema.weights(query.fields))
        keys = [key for key in keys if not any(key in hit.node.metadata for hit in hits)]
        if keys:
            inquiry = ("fields", id(store), *keys, query.condition)
            note_inquiry(inquiry, lambda: passages().without(query, keys), always=True)
    trace = recording()
    if trace is not None and hits:
        trace.notes["fields"] = yield from _shares(query, hits, store, backend)


def words_by_field(query: Query, node: BaseNode, backend: Backend) -> FieldWords:
    """Return the words of a question in each searched field of a node, the heaviest field first."""
    store, text = backend.store, query.query_str
    if not isinstance(store, EngineStore):
        return FieldWords()
    schema, unindexed = store.field_schema, store.unindexed
    texts = {**schema.texts(node), EVERYTHING: schema.everything(node)}
    weights = sorted(schema.weights(query.fields).items(), key=lambda item: -item[1])
    fields = [
        (name, weight, _words(texts[name], text, store))
        for name, weight in weights
        if name not in unindexed
    ]
    searched = "\n".join(texts[name] for name, *_ in fields)
    # The other way round, which takes linear time: parts of the question that the node has.
    shared = {at for span in matched_spans(text, searched, store.tokenizer) for at in range(*span)}
    asked = matched_spans(text, text, store.tokenizer)
    missing = [text[slice(*span)] for span in asked if shared.isdisjoint(range(*span))]
    return FieldWords(
        tuple((name, weight, tuple(words)) for name, weight, words in fields if words),
        tuple(dict.fromkeys(missing)),
    )


def _shares(
    query: Query, hits: Sequence[Hit], store: EngineStore, backend: Backend
) -> Plan[dict[str, dict[str, dict[str, object]]]]:
    """Return the share of each field in the keyword score of hits, with the words it matched."""
    text = keyword_text(query)[0]
    schema, scores = store.field_schema, {hit.node_id: dict[str, float]() for hit in hits}
    for name, weight in schema.weights(query.fields).items():
        if name in store.unindexed:
            continue
        search = Search(_EXPLAINED, query.condition, query.scope, fields={name: weight})
        for candidate in (yield from call(backend.keyword(text, search))):
            if candidate.node_id in scores:
                scores[candidate.node_id][name] = candidate.score
    shares: dict[str, dict[str, dict[str, object]]] = {}
    for hit in hits:
        of_hit, total = scores[hit.node_id], sum(scores[hit.node_id].values())
        texts = schema.texts(hit.node)
        texts[EVERYTHING] = schema.everything(hit.node)
        shares[hit.node_id] = {
            name: {"share": score / total, "words": _words(texts[name], text, store)}
            for name, score in sorted(of_hit.items(), key=lambda item: -item[1])
        }
    return shares


def _words(field: str, text: str, store: EngineStore) -> list[str]:
    spans = matched_spans(field, text, store.tokenizer)
    return list(dict.fromkeys(field[start:end] for start, end in spans))
