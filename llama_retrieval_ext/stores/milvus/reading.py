"""Reads nodes back with their embeddings, by id or all that match."""

# pymilvus declares some results more widely than its blocking client returns them.
# pyright: reportAssignmentType=false

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from llama_index.core.schema import BaseNode
from pymilvus import MilvusClient

from llama_retrieval_ext.stores.milvus.collection import Collection
from llama_retrieval_ext.stores.milvus.conditions import Expression, one_of
from llama_retrieval_ext.stores.milvus.schema import DENSE, ID, NODE
from llama_retrieval_ext.stores.nodes.stored_node import node_from_text

Row: TypeAlias = Mapping[str, Any]  # as pymilvus has it

_PAGE: Final = 1000
_LITE_MOST: Final = 10**7


def matching_nodes(
    collection: Collection, expression: Expression, *, order: Sequence[str] | None
) -> list[BaseNode]:
    """Every node that matches, with its embedding.

    Args:
        collection: Where.
        expression: What they match.
        order: Node ids in the order wanted; None for ascending ids.
    """
    if expression is False:
        return []
    reader = _Reader(collection, _filter(expression))
    nothing: list[Row] = []
    rows = collection.read(reader.rows, empty=nothing)
    nodes = {node.node_id: node for node in map(_node, rows)}
    ids = sorted(nodes) if order is None else dict.fromkeys(order)
    return [nodes[node_id] for node_id in ids if node_id in nodes]


def count_matching(collection: Collection, expression: Expression) -> int:
    """How many nodes match."""
    if expression is False:
        return 0
    answer = collection.read(
        lambda client: client.query(
            collection.name,
            filter=_filter(expression),
            output_fields=["count(*)"],
            consistency_level="Strong",  # a count that lags behind would be a wrong one
            timeout=collection.connection.timeout_s,
        ),
        empty=[{"count(*)": 0}],
    )
    return int(answer[0]["count(*)"])


class _Reader:
    """Reads all rows that satisfy an expression, page by page."""

    def __init__(self, collection: Collection, filter_: str) -> None:
        self._collection = collection
        self._filter = filter_

    def rows(self, client: MilvusClient) -> list[Row]:
        pages = self._lite_pages if self._collection.connection.is_lite else self._pages
        return [row for page in pages(client) for row in page]

    def _pages(self, client: MilvusClient) -> Iterator[Sequence[Row]]:
        pages = client.query_iterator(
            self._collection.name,
            batch_size=_PAGE,
            filter=self._filter,
            output_fields=[NODE, DENSE],
            timeout=self._collection.connection.timeout_s,
        )
        try:
            while page := pages.next():
                yield page
        finally:
            pages.close()

    def _lite_pages(self, client: MilvusClient) -> Iterator[Sequence[Row]]:
        # Its answers have no limit but that of a message, and its iterator prints a warning.
        found = self._query(client, self._filter, [ID], limit=_LITE_MOST)
        ids = [row[ID] for row in found]
        for start in range(0, len(ids), _PAGE):
            some = one_of(ID, ids[start : start + _PAGE])
            yield self._query(client, str(some), [NODE, DENSE], limit=_PAGE)

    def _query(
        self, client: MilvusClient, filter_: str, columns: list[str], *, limit: int
    ) -> list[Row]:
        rows: list[Row] = client.query(
            self._collection.name,
            filter=filter_,
            output_fields=columns,
            limit=limit,
            timeout=self._collection.connection.timeout_s,
        )
        return rows


def _filter(expression: Expression) -> str:
    return expression if isinstance(expression, str) else ""


def _node(row: Row) -> BaseNode:
    node = node_from_text(row[NODE])
    node.embedding = [float(value) for value in row[DENSE]]
    return node
