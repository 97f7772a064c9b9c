"""Fields of keyword searches: checks, hints, and what each gave to a hit, for `explain`."""

from collections.abc import Callable, Sequence

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import (
    call,
    current_context,
    note_hint,
    note_inquiry,
    recording,
)
from llama_retrieval_ext.execution.hints import Passages
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.pipeline.why_not import FieldWords
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.schema import EVERYTHING, keys_of
from llama_retrieval_ext.stores.engine.backend import Backend, Search
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.text.highlighting import matched_spans
from llama_retrieval_ext.wording import quoted

# Nodes of a field whose scores are read to explain those of the hits.
_EXPLAINED = 1_000


def check_fields(query: Query, store: BasePydanticVectorStore) -> None:
    """Raise `ConfigurationError` if a query weighs fields that a store does not search."""
    if query.fields is None:
        return
    current_context().session.weighs_fields = True
    if not isinstance(store, EngineStore):
        raise ConfigurationError(
            f"{type(store).__name__} has no fields to weigh; leave fields out, or use a knowledge "
            "base, or a store opened by URL"
        )
    store.field_schema.weights(query.fields)


def note_fields(
    query: Query, hits: Sequence[Hit], backend: Backend, text: str, passages: Callable[[], Passages]
) -> Plan[None]:
    """Note fields that are not indexed, or in no passage, and in `explain` what each gave."""
    store = backend.store
    if not isinstance(store, EngineStore):
        return
    weights = store.field_schema.weights(query.fields)
    unindexed = [name for name in store.unindexed if name in weights]
    if unindexed:
        note_hint(
            f"not searched, since they are not indexed: {', '.join(map(quoted, unindexed))}; "
            "call index_fields() of the knowledge base"
        )
    keys = [key for key in keys_of(weights) if not any(key in hit.node.metadata for hit in hits)]
    if keys and (query.fields is not None or not (hits or store.field_schema.is_default)):
        key = ("fields", id(store), *keys, query.condition)
        note_inquiry(key, lambda: passages().without(query, keys), always=True)
    trace = recording()
    if trace is not None and hits:
        trace.notes["fields"] = yield from _shares(query, hits, store, backend, text)


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
    query: Query, hits: Sequence[Hit], store: EngineStore, backend: Backend, text: str
) -> Plan[dict[str, dict[str, dict[str, object]]]]:
    """Return the share of each field in the keyword score of hits, with the words it matched."""
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
