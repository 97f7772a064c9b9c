"""`ElasticsearchNodes`: adds, reads, counts and deletes nodes; checks all before a write."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, TypeAlias

from llama_index.core.schema import BaseNode
from pydantic_core import to_json

from llama_retrieval_ext.errors import ConfigurationError, StoreError
from llama_retrieval_ext.query import TENANT_KEY
from llama_retrieval_ext.stores.elasticsearch.client import (
    Json,
    Requests,
    error_of_part,
    json_request,
    lines_request,
    read,
)
from llama_retrieval_ext.stores.elasticsearch.filters import (
    DOC,
    EVERYTHING,
    NOTHING,
    PIECES,
    TERMS,
    compile_target,
    key_of,
    pieces_of,
    scalar,
    terms_of,
)
from llama_retrieval_ext.stores.elasticsearch.schema import (
    ID,
    NODE,
    SEARCH_PARAMS,
    TEXT,
    VECTOR,
    Index,
    compact_vector,
)
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_to_text
from llama_retrieval_ext.stores.encoding.values import batches, filterable, keyword_text, utf8_safe
from llama_retrieval_ext.stores.engine.collection import Nodes
from llama_retrieval_ext.stores.engine.config import StoreConfig
from llama_retrieval_ext.stores.engine.query_modes import Target
from llama_retrieval_ext.stores.engine.records import in_parts

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
# Limit of servers for the terms of a query; repeated terms count each time.
_MAX_TERMS: Final = 1024
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


class ElasticsearchNodes(Nodes[Json | None]):
    """The nodes of an index."""

    _collection: Index

    def add(self, nodes: Sequence[BaseNode]) -> Requests[None]:
        """Add nodes, or replace those with the same id."""
        index = self._collection
        # Looked up each time: a write to a missing index would create one with another mapping.
        vectors = yield from index.vectors_of(nodes, again=True)
        config = yield from index.create(len(vectors[0]))
        actions = [
            _addition(node, vector, config) for node, vector in zip(nodes, vectors, strict=True)
        ]
        if index.is_routed:
            yield from self._delete_other_routes(nodes)
        for batch in _batches(actions):
            yield from self.write(batch)
        yield index.refresh_request()

    def delete(self, matching: Json | None) -> Requests[None]:
        """Delete the nodes that match, except nodes replaced meanwhile that no longer match.

        None deletes nothing.
        """
        for _ in range(_MAX_PASSES):
            conflicts = yield from self._delete_pass(matching or NOTHING)
            yield self._collection.refresh_request()
            if not conflicts:
                return
        raise StoreError(
            f"nodes of {self._collection.where} were changed as fast as they were to be deleted; "
            "delete them while no process writes to them"
        )

    def read(self, matching: Json | None) -> Requests[list[BaseNode]]:
        """Return every node that matches, with its embedding."""
        hits = yield from self.hits(matching, {"_source": [NODE, VECTOR]})
        dimension = self._collection.config.dimension or 0
        return [_node(hit["_source"], dimension=dimension) for hit in hits]

    def count(self, matching: Json | None) -> Requests[int]:
        """Return the number of nodes that match."""
        # _count skips shards that are not available.
        body = {"query": matching or EVERYTHING, "size": 0, "track_total_hits": True}
        name = self._collection.name
        request = json_request("POST", name, "_search", params=SEARCH_PARAMS, body=body)
        return (yield from read(request, _total))

    def hits(self, matching: Json | None, fields: Json) -> Requests[list[Json]]:
        """Return every document that matches, with `fields`, in pages of `_PAGE_BYTES`."""
        found: list[Json] = []
        size = min(_FIRST_PAGE, self._collection.window)
        while True:
            page = yield from self._page(matching, found[-1:], fields, size)
            found += page
            if len(page) < size:
                return found
            average = sum(map(_bytes_of, page)) // size
            size = min(max(1, _PAGE_BYTES // average), self._collection.window)

    def write(
        self, batch: Sequence[Action], tolerated: Collection[int] = ()
    ) -> Requests[list[Json]]:
        """Return the result of each action of a written batch; raise if one is not tolerated."""
        lines = [line for head, body in batch for line in (to_json(head), body) if line is not None]
        answer = yield lines_request(self._collection.name, "_bulk", lines=lines)
        items: list[Json] = [item for reply in answer["items"] for item in reply.values()]
        for item in items:
            if item["status"] >= FIRST_ERROR and item["status"] not in tolerated:
                error = error_of_part(item["status"], item, f"index {self._collection.name!r}")
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
        return (yield from self._collection.hits(body))

    def _delete_pass(self, query: Json) -> Requests[bool]:
        """Delete the nodes that match now; return whether nodes were changed meanwhile."""
        conflicts, size = False, min(PAGE, self._collection.window)
        hits: list[Json] = []
        while True:
            hits = yield from self._page(query, hits, _NO_FIELDS, size)
            for batch in _batches([_deletion(hit) for hit in hits]):
                items = yield from self.write(batch, (CONFLICT, NOT_FOUND))
                conflicts |= any(item["status"] == CONFLICT for item in items)
            if len(hits) < size:
                return conflicts

    def _delete_other_routes(self, nodes: Sequence[BaseNode]) -> Requests[None]:
        """Delete nodes with these ids on other shards, where other tenants' nodes are."""
        routes = {key_of(node.node_id): _route_of_node(node) for node in nodes}
        size = min(PAGE, self._collection.window)
        for ids in in_parts([node.node_id for node in nodes], size):
            hits = yield from self._page(compile_target(Target(rows=ids)), [], _NO_FIELDS, size)
            others = [_deletion(hit) for hit in hits if hit["_routing"] != routes[hit["_id"]]]
            for batch in _batches(others):
                yield from self.write(batch, (CONFLICT, NOT_FOUND))


def indexed_text(node: BaseNode, config: StoreConfig) -> str:
    """Return the text for keyword search: terms joined by spaces; unchanged for an analyser."""
    text = keyword_text(node)
    if "analyzer" in config.params:
        return utf8_safe(text)
    return " ".join(map(utf8_safe, config.tokenizer.tokens(text)))


def query_text(text: str, config: StoreConfig) -> str:
    """Return a query in the same form; above 1,024 terms, only the first distinct ones."""
    if "analyzer" in config.params:
        return utf8_safe(text)
    tokens = config.tokenizer.query_tokens(text)
    if len(tokens) > _MAX_TERMS:
        tokens = list(dict.fromkeys(tokens))[:_MAX_TERMS]
    return " ".join(map(utf8_safe, tokens))


def route_of(tenant_id: object) -> str:
    """Return the routing value of a tenant's nodes."""
    return scalar(tenant_id) if isinstance(tenant_id, str) else _NO_TENANT


def _route_of_node(node: BaseNode) -> str:
    return route_of(node.metadata.get(TENANT_KEY))


def _addition(node: BaseNode, vector: list[float], config: StoreConfig) -> Action:
    action: Json = {"_id": key_of(node.node_id)}
    if config.params.get("routing"):
        action["routing"] = _route_of_node(node)
    return {"index": action}, to_json(stored_document(node, vector, config))


def stored_document(node: BaseNode, vector: list[float], config: StoreConfig) -> Json:
    """Return the stored document of a node; without the vector if it is zero with cosine."""
    if len(node.node_id) > _MAX_ID:
        raise ConfigurationError(
            f"a node id has at most {_MAX_ID} characters, got {len(node.node_id)}: "
            f"{node.node_id[:50]!r}..."
        )
    fields: Json = {
        ID: utf8_safe(node.node_id),
        DOC: None if node.ref_doc_id is None else scalar(node.ref_doc_id),
        NODE: utf8_safe(node_to_text(node)),
        TEXT: indexed_text(node, config),
        TERMS: terms_of(filterable(node)),
        PIECES: pieces_of(node.metadata),
        VECTOR: compact_vector(vector, config.distance),
    }
    return {name: value for name, value in fields.items() if value}


def _node(source: Json, *, dimension: int) -> BaseNode:
    node = node_from_text(source[NODE])
    node.embedding = list(source.get(VECTOR) or [0.0] * dimension)
    return node


def _bytes_of(hit: Json) -> int:
    """Return the approximate size of a hit in an answer."""
    parts = hit["_source"] if "_source" in hit else {NODE: hit["fields"][NODE][0]}
    return _HIT_BYTES + len(parts[NODE]) + _NUMBER_BYTES * len(parts.get(VECTOR, ()))


def _deletion(hit: Json) -> Action:
    action: Json = {
        "_id": hit["_id"],
        "if_seq_no": hit["_seq_no"],
        "if_primary_term": hit["_primary_term"],
    }
    if "_routing" in hit:
        action["routing"] = hit["_routing"]
    return {"delete": action}, None


def _batches(actions: Sequence[Action]) -> Iterator[list[Action]]:
    return batches(
        actions, lambda action: len(action[1] or b""), max_items=_BATCH, max_bytes=_BATCH_BYTES
    )


def _total(answer: Json) -> int:
    total: int = answer["hits"]["total"]["value"]
    return total
