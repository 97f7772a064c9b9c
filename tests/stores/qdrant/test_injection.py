"""Whatever is written into values, keys, ids and targets: no foreign row, nothing else deleted."""

import random
from collections.abc import Iterator

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)

from llama_retrieval_ext.errors import InvalidFilterError, UnsupportedFilterError
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.qdrant.store import QdrantBackend, QdrantStore
from tests.stores.qdrant.places import PLACES, place

pytestmark = pytest.mark.slow

PIECES = [
    '"', "'", "\\", "[]", "[0]", ".", "*", "%", "$", "{", "}", "(", ")", "\x00", "\n", " or ", "||",
    "tenant_id", "b", "==", "meta", '"meta"."tenant_id"', "doc", '"} , "should": [{', "must_not",
    "null", "\ud800", "中", '{"$ne": 1}', "in [", "]", "--", "/*", ":memory:", "../", "",
]  # fmt: skip
ATTEMPTS = 2000
OWN = ["a0", "a1"]


@pytest.fixture(scope="module", params=PLACES)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[QdrantStore]:
    with place(request.param, tmp_path_factory.mktemp("kept")) as url, QdrantStore(url) as opened:
        opened.add(
            [
                TextNode(
                    id_=f"{tenant}{number}",
                    text="text of everybody",
                    embedding=[1.0, number],
                    metadata={"tenant_id": tenant, "k": "v", "tags": ["x"]},
                    relationships={
                        NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"{tenant}.md")
                    },
                )
                for tenant in "ab"
                for number in range(2)
            ]
        )
        yield opened


def test_no_filter_shows_a_foreign_row(store: QdrantStore) -> None:
    rng, scope, backend = random.Random(1), Scope("a"), QdrantBackend(store)
    refused = asked = 0
    for _ in range(ATTEMPTS // 2):
        try:
            condition = Query("x", filters=filters(rng), scope=scope).condition
            search = Search(10, condition, scope)
            legs = backend.hybrid([1.0, 0.0], "text", search, nodes_last=False)
        except (InvalidFilterError, UnsupportedFilterError):
            refused += 1
            continue
        asked += 1
        assert legs.function().found.keys() <= set(OWN)
    assert asked > ATTEMPTS / 20
    assert refused > ATTEMPTS / 20


def test_no_id_or_document_shows_another_row(store: QdrantStore) -> None:
    rng = random.Random(2)
    for _ in range(ATTEMPTS // 8):
        names = [text(rng), text(rng)]
        assert store.get_nodes(names) == []
        query = VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=9)
        query.doc_ids = [name or "x" for name in names]
        assert store.query(query).ids == []


def test_no_target_deletes_another_row(store: QdrantStore) -> None:
    rng = random.Random(3)
    for _ in range(ATTEMPTS // 2):
        try:
            match rng.randrange(3):
                case 0:
                    store.delete(text(rng) or "x")
                case 1:
                    store.delete_nodes([text(rng)])
                case _:
                    store.delete_nodes(["none", text(rng)], filters(rng))
        except (InvalidFilterError, UnsupportedFilterError):
            continue
    assert [node.node_id for node in store.get_nodes()] == ["a0", "a1", "b0", "b1"]


def text(rng: random.Random) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(5)))


def filters(rng: random.Random) -> MetadataFilters:
    def one() -> MetadataFilter:
        key = rng.choice(["k", "tags", "tenant_id", text(rng)])
        operator = rng.choice(list(FilterOperator))
        many = operator in {
            FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL,
        }  # fmt: skip
        value = [text(rng), text(rng)] if many else text(rng)
        return MetadataFilter(
            key=key, operator=operator, value=None if operator is FilterOperator.IS_EMPTY else value
        )

    return MetadataFilters(
        filters=[one() for _ in range(rng.randrange(1, 3))],
        condition=rng.choice([*FilterCondition, None]),
    )
