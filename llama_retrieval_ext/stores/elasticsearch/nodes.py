"""Adds, reads, counts and deletes nodes; all nodes of a call are checked before the first write."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from llama_index.core.schema import BaseNode
from pydantic_core import to_json

from llama_retrieval_ext.errors import ConfigurationError, StoreError
from llama_retrieval_ext.query import TENANT_KEY
from llama_retrieval_ext.stores.elasticsearch.client import (
    Requests,
    hits_of,
    json_request,
    lines_request,
    read,
)
from llama_retrieval_ext.stores.elasticsearch.encoding import (
    Json,
    compact_vector,
    pieces_of,
    scalar,
    terms_of,
)
from llama_retrieval_ext.stores.elasticsearch.errors import error_of_part
from llama_retrieval_ext.stores.elasticsearch.filters import (
    DOC,
    EVERYTHING,
    PIECES,
    TERMS,
    compile_target,
    key_of,
)
from llama_retrieval_ext.stores.elasticsearch.schema import (
    ID,
    NODE,
    SEARCH_PARAMS,
    TEXT,
    VECTOR,
    ElasticsearchConfig,
    Index,
)
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_to_text
from llama_retrieval_ext.stores.encoding.values import batches, keyword_text, utf8_safe
from llama_retrieval_ext.stores.encoding.vectors import document_vectors
from llama_retrieval_ext.stores.engine.query_modes import Target

PAGE: Final = 1000
_BATCH: Final = 500
# Servers take 100 MB at once; Elastic recommends some 5 to 15.
_BATCH_BYTES: Final = 8_000_000
# The engine takes no longer term.
_MAX_ID: Final = 8_000
# The number of terms that servers take in a query. Repeated terms count repeatedly.
_MAX_TERMS: Final = 1024
# Routing value of nodes without a tenant; a tenant's own value is longer.
_NO_TENANT: Final = "-"
_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_FIRST_ERROR: Final = 300
# How often to retry the deletion of nodes that are being changed.
_MAX_PASSES: Final = 20

_Action = tuple[Json, bytes | None]


def add_nodes(index: Index, nodes: Sequence[BaseNode]) -> Requests[None]:
    """Add nodes, or replace those with the same id."""
    config = yield from index.create(len(nodes[0].embedding or ()) or 1)
    vectors = document_vectors(
        nodes,
        dimension=config.dimension or len(nodes[0].embedding or ()),
        distance=config.distance,
        where=index.where,
    )
    actions = [_addition(node, vector, config) for node, vector in zip(nodes, vectors, strict=True)]
    if config.routing:
        yield from _delete_other_routes(index, nodes)
    for batch in _batches(actions):
        yield from _write(index, batch, {})
    yield index.refresh_request()


def delete_nodes(index: Index, query: Json) -> Requests[None]:
    """Delete the nodes that match; not those that are replaced meanwhile and no longer match."""
    if not (yield from index.exists()):
        return
    for _ in range(_MAX_PASSES):
        conflicts = yield from _delete_pass(index, query)
        yield index.refresh_request()
        if not conflicts:
            return
    raise StoreError(
        f"nodes of the index {index.name!r} were changed as fast as they were to be deleted; "
        "delete them when nobody writes to them"
    )


def matching_nodes(index: Index, query: Json | None) -> Requests[list[BaseNode]]:
    """Return every node that matches, with its embedding."""
    if not (yield from index.exists()):
        return []
    nodes: list[BaseNode] = []
    after: list[str] | None = None
    while True:
        hits = yield from page_of_hits(index, query, after=after, fields=[NODE, VECTOR])
        nodes += [_node(hit["_source"], dimension=index.config.dimension or 0) for hit in hits]
        if len(hits) < PAGE:
            return nodes
        after = hits[-1]["sort"]


def count_matching(index: Index, query: Json | None) -> Requests[int]:
    """Return how many nodes match."""
    # Not by _count, which skips shards that are not available.
    body = {"query": query or EVERYTHING, "size": 0, "track_total_hits": True}
    search = json_request("POST", index.name, "_search", params=SEARCH_PARAMS, body=body)
    return (yield from read(search, _total))


def indexed_text(node: BaseNode, config: ElasticsearchConfig) -> str:
    """Return the text for keyword search: terms joined by spaces, or as it is for an analyser."""
    text = keyword_text(node)
    if config.analyzer is not None:
        return utf8_safe(text)
    return " ".join(map(utf8_safe, config.tokenizer.tokens(text)))


def query_text(text: str, config: ElasticsearchConfig) -> str:
    """Return a query in the same form; of more than 1,024 terms the first different ones."""
    if config.analyzer is not None:
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


def _addition(node: BaseNode, vector: list[float], config: ElasticsearchConfig) -> _Action:
    action: Json = {"_id": key_of(node.node_id)}
    if config.routing:
        action["routing"] = _route_of_node(node)
    return {"index": action}, to_json(stored_document(node, vector, config))


def stored_document(node: BaseNode, vector: list[float], config: ElasticsearchConfig) -> Json:
    """Return the stored document of a node; zeros have no cosine, and are left out."""
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
        TERMS: terms_of(node.metadata),
        PIECES: pieces_of(node.metadata),
        VECTOR: compact_vector(vector, config.distance),
    }
    return {name: value for name, value in fields.items() if value}


def _node(source: Json, *, dimension: int) -> BaseNode:
    node = node_from_text(source[NODE])
    node.embedding = list(source.get(VECTOR) or [0.0] * dimension)
    return node


def _delete_pass(index: Index, query: Json) -> Requests[bool]:
    """Delete what matches now; return whether nodes were changed meanwhile."""
    conflicts = False
    after: list[str] | None = None
    while True:
        hits = yield from page_of_hits(index, query, after=after, fields=[])
        for batch in _batches([_deletion(hit) for hit in hits]):
            conflicts |= yield from _write(index, batch, {_CONFLICT: True, _NOT_FOUND: False})
        if len(hits) < PAGE:
            return conflicts
        after = hits[-1]["sort"]


def _delete_other_routes(index: Index, nodes: Sequence[BaseNode]) -> Requests[None]:
    """Delete nodes with these ids that belong to other tenants, and so are on other shards."""
    routes = {key_of(node.node_id): _route_of_node(node) for node in nodes}
    ids = [node.node_id for node in nodes]
    for start in range(0, len(ids), PAGE):
        query = compile_target(Target(ids[start : start + PAGE]))
        hits = yield from page_of_hits(index, query, after=None, fields=[])
        others = [_deletion(hit) for hit in hits if hit["_routing"] != routes[hit["_id"]]]
        for batch in _batches(others):
            yield from _write(index, batch, {_NOT_FOUND: False, _CONFLICT: False})


def _deletion(hit: Json) -> _Action:
    action: Json = {
        "_id": hit["_id"],
        "if_seq_no": hit["_seq_no"],
        "if_primary_term": hit["_primary_term"],
    }
    if "_routing" in hit:
        action["routing"] = hit["_routing"]
    return {"delete": action}, None


def _batches(actions: Sequence[_Action]) -> Iterator[list[_Action]]:
    return batches(
        actions, lambda action: len(action[1] or b""), max_items=_BATCH, max_bytes=_BATCH_BYTES
    )


def _write(index: Index, batch: Sequence[_Action], tolerated: Mapping[int, bool]) -> Requests[bool]:
    """Write a batch; return whether a part of it has to be repeated."""
    lines = [line for head, body in batch for line in (to_json(head), body) if line is not None]
    answer = yield lines_request(index.name, "_bulk", lines=lines)
    repeat = False
    for reply in answer["items"] if answer["errors"] else []:
        ((_, item),) = reply.items()
        status: int = item["status"]
        if status in tolerated:
            repeat |= tolerated[status]
        elif status >= _FIRST_ERROR:
            error = error_of_part(status, item, f"index {index.name!r}")
            error.add_note(f"while writing the node with the id {item['_id']!r}")
            raise error
    return repeat


def page_of_hits(
    index: Index, query: Json | None, *, after: list[str] | None, fields: Sequence[str]
) -> Requests[list[Json]]:
    """Return the next matching documents after those of the last page, in the order of node ids.

    Ids are unique, so that pages fit together whatever is written or deleted meanwhile.
    """
    body: Json = {
        "query": {"bool": {"filter": [query or EVERYTHING]}},
        "size": PAGE,
        "sort": [{ID: "asc"}],
        "_source": list(fields),
        "track_total_hits": False,
        "seq_no_primary_term": True,
    }
    if after is not None:
        body["search_after"] = after
    search = json_request("POST", index.name, "_search", params=SEARCH_PARAMS, body=body)
    return (yield from read(search, hits_of))


def _total(answer: Json) -> int:
    total: int = answer["hits"]["total"]["value"]
    return total
