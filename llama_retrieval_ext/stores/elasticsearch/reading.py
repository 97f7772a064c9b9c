"""Reads nodes back with their embeddings, by id or all that match."""

from collections.abc import Sequence
from typing import Final

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.stores.elasticsearch.conditions import EVERYTHING
from llama_retrieval_ext.stores.elasticsearch.documents import node_of
from llama_retrieval_ext.stores.elasticsearch.index import SEARCH_PARAMS, Index
from llama_retrieval_ext.stores.elasticsearch.mapping import ID, NODE, VECTOR
from llama_retrieval_ext.stores.elasticsearch.patience import answer
from llama_retrieval_ext.stores.elasticsearch.questions import hits_in
from llama_retrieval_ext.stores.elasticsearch.request import Json, Steps, request

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
