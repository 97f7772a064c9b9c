"""An index: its mapping and recorded config, and its nodes."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Container
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
from llama_index.core.schema import BaseNode
from pydantic_core import to_json

from llama_retrieval_ext.errors import ConfigurationError, StoreError
from llama_retrieval_ext.scope import TENANT_KEY
from llama_retrieval_ext.stores.elasticsearch.client import (
    HttpRequest,
    Json,
    Requests,
    Transport,
    error_of_part,
    hits_of,
    read,
    request_of,
)
from llama_retrieval_ext.stores.elasticsearch.filters import (
    DOC,
    EVERYTHING,
    LANGUAGE,
    NOTHING,
    PIECES,
    TERMS,
    key_of,
    pieces_of,
    scalar,
    terms_of,
)
from llama_retrieval_ext.stores.elasticsearch.params import COUNTS, SIMILARITY_NAMES, IndexParams
from llama_retrieval_ext.stores.encoding.node_json import StoredNode, node_from_text, node_to_text
from llama_retrieval_ext.stores.encoding.values import batches, filterable
from llama_retrieval_ext.stores.encoding.vectors import Distance, cosine_score
from llama_retrieval_ext.stores.engine.collection import Collection, column_of, indexed_columns
from llama_retrieval_ext.stores.engine.config import StoreConfig
from llama_retrieval_ext.stores.engine.filters import Target
from llama_retrieval_ext.stores.engine.records import in_parts

FORMAT: Final = 5
# A server's default limit of hits, and of candidates that it examines.
WINDOW: Final = 10_000
_META: Final = "llama_retrieval_ext"
_WINDOW: Final = "max_result_window"
# A missing index returns no hits; a missing shard fails the search: no partial results.
SEARCH_PARAMS: Final = {"ignore_unavailable": "true", "allow_partial_search_results": "false"}
_MISSING_IS_EMPTY: Final = {"ignore_unavailable": "true"}

ID: Final = "id"
NODE: Final = "node"
VECTOR: Final = "vector"
TEXT: Final = "text"

# Requests the nodes of hits; the engine need not parse their source.
STORED_NODES: Final[Json] = {"_source": False, "stored_fields": [NODE]}

# The same parameters for every engine of this package.
_BM25: Final = {"type": "BM25", "k1": 1.2, "b": 0.75}
# For matching whole terms only, so without columns on disk.
_KEYWORD: Final = {"type": "keyword", "doc_values": False}
# Decimals of vectors of length 1: single precision has no more digits.
_DECIMALS: Final = 8
# The default: scores in full precision.
_EXACT: Final = {"type": "hnsw"}


PAGE: Final = 1000
# Approximate size of an answer; only that of the first page depends on the nodes.
_PAGE_BYTES: Final = 16_000_000
_NUMBER_BYTES: Final = 12
_HIT_BYTES: Final = 200
_FIRST_PAGE: Final = 200
_BATCH: Final = 500
# Servers accept 100 MB per request; Elastic recommends 5 to 15 MB.
_BATCH_BYTES: Final = 8_000_000
# Limit of the engine for a term.
_MAX_ID: Final = 8_000
# Routing value of nodes without a tenant; a tenant's own value is longer.
_NO_TENANT: Final = "-"
CONFLICT: Final = 409
NOT_FOUND: Final = 404
FIRST_ERROR: Final = 300
# How often to retry the deletion of nodes that are being changed.
_MAX_PASSES: Final = 20

_NO_FIELDS: Final[Json] = {"_source": False}
# An action of _bulk: its header line and its document.
Action: TypeAlias = tuple[Json, bytes | None]


# Converts the engine's scores to ours.
SCORES: Final[Mapping[Distance, Callable[[float], float]]] = {
    "cosine": lambda score: cosine_score(2.0 * score - 1.0),
    "dot": lambda score: score - 1.0 if score >= 1.0 else 1.0 - 1.0 / score,
    "euclid": lambda score: -math.sqrt(max(0.0, 1.0 / score - 1.0)),
}


def compact_vector(vector: list[float], distance: Distance) -> list[float] | None:
    """Return a vector in few digits, of length 1 for cosine; None for zeros with cosine.

    Examples:
        >>> compact_vector([3.0, 4.0], "cosine"), compact_vector([0.0, 0.0], "cosine")
        ([0.6, 0.8], None)

    """
    if distance != "cosine":
        return np.asarray(vector, dtype=np.float32).tolist()  # type: ignore[no-any-return]  # floats
    values = np.asarray(vector)
    length = np.linalg.norm(values)
    return np.round(values / length, _DECIMALS).tolist() if length else None


def text_columns(config: StoreConfig) -> Json:
    """Return the mapping of the columns of searched fields."""
    analyzer = config.params.get("analyzer", "whitespace")
    column = {"type": "text", "analyzer": analyzer, "index_options": "freqs"}
    return {column_of(TEXT, name): column for name in config.schema.text}


def indexed_texts(node: BaseNode, config: StoreConfig) -> dict[str, str]:
    """Return the text of each column: terms joined by spaces; unchanged for an analyser."""
    tokens = config.tokenizer.tokens
    encode = str if "analyzer" in config.params else lambda text: " ".join(tokens(text))
    return indexed_columns(node, config.schema, encode, kind=TEXT, separator="\n")


def index_body(config: StoreConfig, params: IndexParams) -> Json:
    """Return the settings and the mapping of a new index."""
    counts = {name: number for name, number in params.recorded.items() if name in COUNTS}
    properties: Json = {
        ID: {"type": "keyword"},
        DOC: _KEYWORD,
        # Stored separately, too: the source contains the embedding, and is slower to read.
        NODE: {"type": "text", "index": False, "norms": False, "store": True},
        **text_columns(config),
        TERMS: _KEYWORD,
        PIECES: _KEYWORD,
        VECTOR: {
            "type": "dense_vector",
            "dims": config.dimension,
            "similarity": SIMILARITY_NAMES[config.distance],
            "index": True,
            "index_options": dict(params.index_options or _EXACT),
        },
    }
    return {
        "settings": {"similarity": {"default": _BM25}, **counts, **params.settings},
        "mappings": {
            # An undeclared field is an error; it must not extend the mapping.
            "dynamic": "strict",
            "_meta": {_META: {"format": FORMAT, **config.to_dict()}},
            "_routing": {"required": bool(config.params.get("routing"))},
            "properties": properties,
        },
    }


class Index(Collection[StoreConfig, Transport, IndexParams]):
    """An Elasticsearch index.

    Attributes:
        is_small: Whether the last search found fewer nodes than it requested.
        window: Maximum number of hits of a search, at most `WINDOW`.
    """

    kind = "index"
    format = FORMAT
    config_type = StoreConfig
    llama_index_store = "ElasticsearchStore"
    is_small = False
    window = WINDOW

    @property
    def is_routed(self) -> bool:
        """Whether all nodes of a tenant are on one shard."""
        return bool(self.config.params.get("routing"))

    def recorded(self) -> Requests[StoreConfig | None]:
        """Return the recorded config; None if the index does not exist."""
        description = yield self.request("GET", params=_MISSING_IS_EMPTY)
        if not description:
            return None
        settings = [index.get("settings", {}).get("index", {}) for index in description.values()]
        self.window = min(WINDOW, *(int(setting.get(_WINDOW, WINDOW)) for setting in settings))
        # A name could be an alias of several indices.
        metas = [index.get("mappings", {}).get("_meta", {}) for index in description.values()]
        return self.config_of(metas[0].get(_META) if len(metas) == 1 else None)

    def make(self, config: StoreConfig) -> Requests[None]:
        """Create the index."""
        yield self.request("PUT", body=index_body(config, self.params))
        yield from self.recorded()  # a template of the server may set a window

    def remove(self) -> Requests[None]:
        """Delete the index; raise if this package did not create it."""
        yield from self.look_up(again=True)
        yield self.request("DELETE", params=_MISSING_IS_EMPTY)

    def request(self, method: str, *path: str, **parts: Any) -> HttpRequest:  # noqa: ANN401 - as in `request_of`
        """Return a request to the index."""
        return request_of(method, self.name, *path, **parts)

    def search(self, body: Json, params: Mapping[str, str] = SEARCH_PARAMS) -> Requests[list[Json]]:
        """Return the hits of one search."""
        request = self.request("POST", "_search", params=params, body=body)
        return (yield from read(request, hits_of))

    def refresh_request(self) -> HttpRequest:
        """Return the request that makes written nodes visible to searches."""
        return self.request("POST", "_refresh", params=_MISSING_IS_EMPTY)

    def add(self, nodes: Sequence[BaseNode]) -> Requests[None]:
        """Add nodes, or replace those with the same id."""
        # Looked up each time: a write to a missing index would create one with another mapping.
        vectors = yield from self.vectors_of(nodes, again=True)
        config = yield from self.create(len(vectors[0]))
        actions: list[Action] = []
        for node, vector in zip(nodes, vectors, strict=True):
            action: Json = {"_id": key_of(node.node_id)}
            if self.is_routed:
                action["routing"] = route_of(node.metadata.get(TENANT_KEY))
            actions.append(({"index": action}, to_json(stored_document(node, vector, config))))
        if self.is_routed:
            yield from self._delete_other_routes(nodes)
        for batch in _batches(actions):
            yield from self.write(batch)
        yield self.refresh_request()

    def index_fields(self) -> Requests[int]:
        """Index the fields of the schema from the stored nodes; return their number."""
        config = replace(self.config, schema=self.schema)
        yield self.request("PUT", "_mapping", body={"properties": text_columns(config)})

        def texts(hit: Json) -> Action:
            node = node_from_text(hit["_source"][NODE])
            return {"update": _same(hit)}, to_json({"doc": indexed_texts(node, config)})

        count, _ = yield from self._change(None, {"_source": [NODE]}, texts)
        record = {"_meta": {_META: self.record_of(config)}}
        yield self.request("PUT", "_mapping", body=record)
        yield self.refresh_request()
        self.config = config
        return count

    def delete(self, matching: Json | None) -> Requests[None]:
        """Delete the nodes that match, except nodes replaced meanwhile that no longer match.

        None deletes nothing.
        """
        for _ in range(_MAX_PASSES):
            _, has_conflicts = yield from self._change(matching or NOTHING, _NO_FIELDS, _deletion)
            yield self.refresh_request()
            if not has_conflicts:
                return
        raise StoreError(
            f"nodes of {self.where} were changed as fast as they were to be deleted; "
            "delete them while no process writes to them"
        )

    def stored(self, matching: Json | None, *, embeddings: bool) -> Requests[Iterable[StoredNode]]:
        """Return every node that matches as stored, with its embedding if asked."""
        fields = [NODE, VECTOR] if embeddings else [NODE]
        sources = [hit["_source"] for hit in (yield from self.hits(matching, {"_source": fields}))]
        default = [0.0] * (self.config.dimension or 0) if embeddings else None
        return [(source[NODE], source.get(VECTOR, default)) for source in sources]

    def count(self, matching: Json | None) -> Requests[int]:
        """Return the number of nodes that match."""
        # _count skips shards that are not available.
        body = {"query": matching or EVERYTHING, "size": 0, "track_total_hits": True}
        request = self.request("POST", "_search", params=SEARCH_PARAMS, body=body)
        return (yield from read(request, lambda answer: int(answer["hits"]["total"]["value"])))

    def hits(self, matching: Json | None, fields: Json) -> Requests[list[Json]]:
        """Return every document that matches, with `fields`, in pages of `_PAGE_BYTES`."""
        hits: list[Json] = []
        size = min(_FIRST_PAGE, self.window)
        while True:
            page = yield from self._page(matching, hits[-1:], fields, size)
            hits += page
            if len(page) < size:
                return hits
            average = sum(map(_bytes_of, page)) // size
            size = min(max(1, _PAGE_BYTES // average), self.window)

    def write(
        self, batch: Sequence[Action], tolerated: Container[int] = ()
    ) -> Requests[list[Json]]:
        """Return the result of each action of a written batch; raise if one is not tolerated."""
        lines = [line for head, body in batch for line in (to_json(head), body) if line is not None]
        answer = yield self.request("POST", "_bulk", body=lines)
        items: list[Json] = [item for reply in answer["items"] for item in reply.values()]
        for item in items:
            if item["status"] >= FIRST_ERROR and item["status"] not in tolerated:
                error = error_of_part(item["status"], item, f"index {self.name!r}")
                error.add_note(f"while writing the node with the id {item['_id']!r}")
                raise error
        return items

    def _page(
        self, matching: Json | None, last: Sequence[Json], fields: Json, size: int
    ) -> Requests[list[Json]]:
        """Return the matching documents after the last one, in the order of node ids.

        Ids are unique, so pages stay consistent during concurrent writes and deletions.
        """
        body: Json = {
            "query": {"bool": {"filter": [matching or EVERYTHING]}},
            "size": size,
            "sort": [{ID: "asc"}],
            "track_total_hits": False,
            "seq_no_primary_term": True,
            **fields,
        }
        if last:
            body["search_after"] = last[-1]["sort"]
        return (yield from self.search(body))

    def _change(
        self, matching: Json | None, fields: Json, action: Callable[[Json], Action | None]
    ) -> Requests[tuple[int, bool]]:
        """Write an action, or none, for each document that matches now.

        Returns:
            The number of documents, and whether one was changed meanwhile.
        """
        has_conflicts, count, size = False, 0, min(PAGE, self.window)
        hits: list[Json] = []
        while True:
            hits = yield from self._page(matching, hits, fields, size)
            for batch in _batches([*filter(None, map(action, hits))]):
                items = yield from self.write(batch, (CONFLICT, NOT_FOUND))
                has_conflicts |= any(item["status"] == CONFLICT for item in items)
            count += len(hits)
            if len(hits) < size:
                return count, has_conflicts

    def _delete_other_routes(self, nodes: Sequence[BaseNode]) -> Requests[None]:
        """Delete nodes with these ids on other shards, where other tenants' nodes are."""
        routes = {key_of(node.node_id): route_of(node.metadata.get(TENANT_KEY)) for node in nodes}

        def deletion(hit: Json) -> Action | None:
            return _deletion(hit) if hit["_routing"] != routes[hit["_id"]] else None

        for ids in in_parts([node.node_id for node in nodes], PAGE):
            yield from self._change(LANGUAGE.select(Target(rows=ids)), _NO_FIELDS, deletion)


def route_of(tenant_id: object) -> str:
    """Return the routing value of a tenant's nodes."""
    return scalar(tenant_id) if isinstance(tenant_id, str) else _NO_TENANT


def stored_document(node: BaseNode, vector: list[float], config: StoreConfig) -> Json:
    """Return the stored document of a node; without the vector if it is zero with cosine."""
    if len(node.node_id) > _MAX_ID:
        raise ConfigurationError(
            f"a node id has at most {_MAX_ID} characters, got {len(node.node_id)}: "
            f"{node.node_id[:50]!r}..."
        )
    fields: Json = {
        ID: node.node_id,
        DOC: None if node.ref_doc_id is None else scalar(node.ref_doc_id),
        NODE: node_to_text(node),
        **indexed_texts(node, config),
        TERMS: terms_of(filterable(node)),
        PIECES: pieces_of(node.metadata),
        VECTOR: compact_vector(vector, config.distance),
    }
    return {name: value for name, value in fields.items() if value}


def _bytes_of(hit: Json) -> int:
    """Return the approximate size of a hit in an answer."""
    parts = hit["_source"] if "_source" in hit else {NODE: hit["fields"][NODE][0]}
    return _HIT_BYTES + len(parts[NODE]) + _NUMBER_BYTES * len(parts.get(VECTOR, ()))


def _deletion(hit: Json) -> Action:
    return {"delete": _same(hit)}, None


def _same(hit: Json) -> Json:
    """Return the header of an action on a document that was not changed meanwhile."""
    action: Json = {
        "_id": hit["_id"],
        "if_seq_no": hit["_seq_no"],
        "if_primary_term": hit["_primary_term"],
    }
    return {**action, "routing": hit["_routing"]} if "_routing" in hit else action


def _batches(actions: Sequence[Action]) -> Iterator[list[Action]]:
    return batches(
        actions, lambda action: len(action[1] or b""), max_items=_BATCH, max_bytes=_BATCH_BYTES
    )
