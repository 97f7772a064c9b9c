"""Adds and deletes nodes: all of a call are checked first, then they are written in batches."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from llama_index.core.schema import BaseNode
from pydantic_core import to_json

from llama_retrieval_ext.errors import StoreError
from llama_retrieval_ext.stores.elasticsearch.client import answer
from llama_retrieval_ext.stores.elasticsearch.documents import (
    document_of,
    key_of,
    node_of,
    query_for,
    route_of_node,
)
from llama_retrieval_ext.stores.elasticsearch.errors import of_status
from llama_retrieval_ext.stores.elasticsearch.filters import EVERYTHING
from llama_retrieval_ext.stores.elasticsearch.index import (
    ID,
    NODE,
    SEARCH_PARAMS,
    VECTOR,
    Index,
    Manifest,
)
from llama_retrieval_ext.stores.elasticsearch.requests import Json, Steps, lines_request, request
from llama_retrieval_ext.stores.elasticsearch.search import hits_in
from llama_retrieval_ext.stores.engine.vector_store import Target

BATCH: Final = 500
# Servers take 100 MB at once; Elastic recommends some 5 to 15.
_BATCH_BYTES: Final = 8_000_000
_CONFLICT: Final = 409
_GONE: Final = 404
_FIRST_BAD: Final = 300
# How often what was changed while it was being deleted is looked at again.
_PASSES: Final = 20

_Action = tuple[Json, bytes | None]


def add_nodes(index: Index, nodes: Sequence[BaseNode]) -> Steps[None]:
    """Add nodes, or replace those with the same id; of several with one id the last counts.

    Raises:
        ConfigurationError: A node has no usable embedding, or cannot be stored; nothing was
            written.
        DimensionMismatchError: A node has an embedding of another dimension; nothing was written.
        StoreUnavailableError: The engine failed; the batches before stay.
    """
    unique = list({node.node_id: node for node in nodes}.values())
    if not unique:
        return
    manifest = yield from index.establish(len(unique[0].embedding or ()) or 1)
    actions = [_addition(node, manifest, index.name) for node in unique]
    if manifest.routing:
        yield from _leave_other_routes(index, unique)
    for batch in _batches(actions):
        yield from _write(index, batch, {})
    yield index.refresh()


def delete_matching(index: Index, query: Json) -> Steps[None]:
    """Delete what matches, and nothing that was replaced by what does not."""
    if not (yield from index.known()):
        return
    for _ in range(_PASSES):
        conflicts = yield from _delete_pass(index, query)
        yield index.refresh()
        if not conflicts:
            return
    raise StoreError(
        f"nodes of the index {index.name!r} were changed as fast as they were to be deleted; "
        "delete them when nobody writes to them"
    )


def _delete_pass(index: Index, query: Json) -> Steps[bool]:
    """Delete what matches now; says whether something was changed meanwhile."""
    conflicts = False
    after: list[str] | None = None
    while True:
        hits = yield from page(index, query, after=after, fields=[])
        for batch in _batches([_deletion(hit) for hit in hits]):
            conflicts |= yield from _write(index, batch, {_CONFLICT: True, _GONE: False})
        if len(hits) < PAGE:
            return conflicts
        after = hits[-1]["sort"]


def _leave_other_routes(index: Index, nodes: Sequence[BaseNode]) -> Steps[None]:
    """Delete what has the id of a node but lies where another tenant's nodes do."""
    routes = {key_of(node.node_id): route_of_node(node) for node in nodes}
    ids = [node.node_id for node in nodes]
    for start in range(0, len(ids), PAGE):
        hits = yield from page(
            index, query_for(Target(ids[start : start + PAGE])), after=None, fields=[]
        )
        strays = [_deletion(hit) for hit in hits if hit["_routing"] != routes[hit["_id"]]]
        for batch in _batches(strays):
            yield from _write(index, batch, {_GONE: False, _CONFLICT: False})


def _addition(node: BaseNode, manifest: Manifest, index: str) -> _Action:
    action: Json = {"_id": key_of(node.node_id)}
    if manifest.routing:
        action["routing"] = route_of_node(node)
    return {"index": action}, to_json(document_of(node, manifest, index=index))


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
    batch: list[_Action] = []
    size = 0
    for action in actions:
        batch.append(action)
        size += len(action[1] or b"")
        if len(batch) == BATCH or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write(index: Index, batch: Sequence[_Action], tolerated: Mapping[int, bool]) -> Steps[bool]:
    """Write a batch.

    Args:
        index: Where.
        batch: What.
        tolerated: Statuses that are no error, and whether each means that it has to be done again.
    """
    lines = [line for head, body in batch for line in (to_json(head), body) if line is not None]
    told = yield lines_request(index.name, "_bulk", lines=lines)
    again = False
    for reply in told["items"] if told["errors"] else []:
        ((_, item),) = reply.items()
        status: int = item["status"]
        if status in tolerated:
            again |= tolerated[status]
        elif status >= _FIRST_BAD:
            error = of_status(status, item, f"index {index.name!r}")
            error.add_note(f"while writing the node with the id {item['_id']!r}")
            raise error
    return again


PAGE: Final = 1000


def matching_nodes(
    index: Index, query: Json | None, *, order: Sequence[str] | None
) -> Steps[list[BaseNode]]:
    """Every node that matches, with its embedding.

    Args:
        index: Where.
        query: What they match; None for all.
        order: Node ids in the order wanted; None for ascending ids.
    """
    if not (yield from index.known()):
        return []
    nodes: dict[str, BaseNode] = {}
    after: list[str] | None = None
    while True:
        hits = yield from page(index, query, after=after, fields=[NODE, VECTOR])
        for hit in hits:
            node = node_of(hit["_source"], dimension=index.manifest.dimension or 0)
            nodes[node.node_id] = node
        if len(hits) < PAGE:
            break
        after = hits[-1]["sort"]
    ids = sorted(nodes) if order is None else dict.fromkeys(order)
    return [nodes[node_id] for node_id in ids if node_id in nodes]


def count_matching(index: Index, query: Json | None) -> Steps[int]:
    """How many nodes match."""
    # Not by _count, which leaves out what lies on shards that are away.
    body = {"query": query or EVERYTHING, "size": 0, "track_total_hits": True}
    asked = request("POST", index.name, "_search", params=SEARCH_PARAMS, body=body)
    return (yield from answer(asked, _total))


def page(
    index: Index, query: Json | None, *, after: list[str] | None, fields: Sequence[str]
) -> Steps[list[Json]]:
    """The next matching documents in the order of their node ids.

    Ids are unique, so that a page begins where the last one ended whatever is written or deleted
    meanwhile.

    Args:
        index: Where.
        query: What they match; None for all.
        after: Where the last page ended; None for the first.
        fields: What is wanted of each.
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
    asked = request("POST", index.name, "_search", params=SEARCH_PARAMS, body=body)
    return (yield from answer(asked, hits_in))


def _total(told: Json) -> int:
    total: int = told["hits"]["total"]["value"]
    return total
