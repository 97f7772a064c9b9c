"""Filters mean exactly what `matches` says, on our payload and on LlamaIndex's, on each engine."""

import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator
from llama_index.core.vector_stores.utils import node_to_metadata_dict
from qdrant_client import QdrantClient
from qdrant_edge import (
    Distance,
    EdgeConfig,
    EdgeShard,
    EdgeVectorParams,
    Point,
    ScrollRequest,
    UpdateOperation,
)

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Value, matches
from llama_retrieval_ext.stores.backend import Search
from llama_retrieval_ext.stores.embedded.conditions import as_edge_filter
from llama_retrieval_ext.stores.points.point_id import point_id
from llama_retrieval_ext.stores.qdrant.backend import QdrantBackend
from llama_retrieval_ext.stores.qdrant.flat_conditions import flat_clause_of
from llama_retrieval_ext.stores.qdrant.foreign_backend import ForeignBackend
from llama_retrieval_ext.stores.qdrant.store import QdrantStore
from tests.stores.qdrant.foreign_stores import foreign_store

KEYS = ["k", "other", "a.b", "a b", "中文", "x/y:z@1+2-3", "list", "meta"]
STRINGS = [
    "", "a", "A", "ab", "3", "true", "None", "it's", 'say "x"', "back\\slash", "100%_*", "é", "É",
    "STRASSE", "straße", "中文法律", "line\nbreak", "a\x00b", "+", "-", "sA", "n3",
]  # fmt: skip
NUMBERS = [0, -0.0, 1, 3, 3.0, 3.5, -7, 0.1, 1e-300, 2**53 - 1]
BIG = [2**53, 2**53 + 1, float(2**53), -(2**53), 2**63, 1e30, 1e300]
SURROGATES = ["lone\ud800", "\udfff"]
SIZED = [FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE]
MANY = [FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL]
ONE = [FilterOperator.EQ, FilterOperator.NE, FilterOperator.CONTAINS]
TEXT, ANY_CASE = FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE

many = settings(
    max_examples=500,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def conditions(
    strings: list[str], numbers: list[float], *, least: int, texts: list[FilterOperator]
) -> st.SearchStrategy[Condition]:
    keys = st.sampled_from(KEYS)
    words = st.one_of(st.sampled_from(strings), st.text(st.characters(codec="utf-8"), max_size=4))
    scalars = st.one_of(words, st.sampled_from(numbers), st.integers(-5, 5))
    compares = st.one_of(
        st.builds(Compare, keys, st.sampled_from(ONE), scalars),
        st.builds(
            Compare,
            keys,
            st.sampled_from(MANY),
            st.lists(scalars, min_size=least, max_size=3).map(tuple),
        ),
        st.builds(Compare, keys, st.sampled_from(SIZED), st.sampled_from(NUMBERS)),
        st.builds(Compare, keys, st.sampled_from(texts), words),
        st.builds(Compare, keys, st.just(FilterOperator.IS_EMPTY), st.none()),
    )
    return st.recursive(
        compares,
        lambda parts: st.one_of(
            st.builds(AllOf, st.lists(parts, max_size=3).map(tuple)),
            st.builds(AnyOf, st.lists(parts, max_size=3).map(tuple)),
            st.builds(Not, parts),
        ),
        max_leaves=5,
    )


ours = conditions([*STRINGS, *SURROGATES], [*NUMBERS, *BIG], least=0, texts=[TEXT, ANY_CASE])
flat = conditions(STRINGS, NUMBERS, least=1, texts=[TEXT])


def random_nodes(scalars: list[object], odd: list[object], *, seed: int) -> list[TextNode]:
    rng = random.Random(seed)

    def value() -> object:
        kind = rng.randrange(10)
        if kind < 6:
            return rng.choice(scalars)
        if kind < 8:
            return [rng.choice([*scalars, None, True, ["a"], [3]]) for _ in range(rng.randrange(4))]
        return rng.choice(odd)

    return [
        TextNode(
            id_=str(point_id(f"n{number}")),
            embedding=[1.0, number],
            metadata={key: value() for key in KEYS if rng.random() < 0.6},
        )
        for number in range(200)
    ]


NODES = random_nodes(
    [*STRINGS, *NUMBERS, *BIG, *SURROGATES],
    [None, True, False, math.nan, math.inf, {}, {"k": "a"}, [], [None]],
    seed=7,
)
FLAT_NODES = random_nodes(
    [*STRINGS, *NUMBERS, 2**53, 2**60],
    [None, True, False, {}, {"k": "a"}, [], [None], [["a"], "a"], [["a"]], [{"k": "a"}]],
    seed=8,
)


def expected(nodes: list[TextNode], condition: Condition) -> set[str]:
    return {node.node_id for node in nodes if matches(condition, node.metadata)}


@pytest.fixture(scope="module")
def own() -> Iterator[QdrantBackend]:
    with QdrantStore("qdrant::memory:") as store:
        store.add(NODES)
        yield QdrantBackend(store)


@pytest.fixture(scope="module")
def foreign() -> Iterator[ForeignBackend]:
    store = foreign_store(QdrantClient(":memory:"))
    store.add(list(FLAT_NODES))
    yield ForeignBackend(store)
    store.client.close()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeShard]:
    """The server's engine, with the payload that LlamaIndex writes."""
    config = EdgeConfig(vectors={"": EdgeVectorParams(2, Distance.Cosine)})
    shard = EdgeShard.create(str(tmp_path_factory.mktemp("edge")), config)
    points = [
        Point(node.node_id, {"": node.get_embedding()}, node_to_metadata_dict(node))
        for node in FLAT_NODES
    ]
    shard.update(UpdateOperation.upsert_points(points))
    yield shard
    shard.close()


def found(backend: QdrantBackend | ForeignBackend, condition: Condition) -> set[str]:
    return {each.node_id for each in backend.dense([1.0, 0.0], Search(1000, condition)).function()}


@many
@given(condition=ours)
def test_a_store_of_ours_finds_what_matches(own: QdrantBackend, condition: Condition) -> None:
    assert found(own, condition) == expected(NODES, condition)


@many
@given(condition=flat)
def test_a_store_of_llamaindex_finds_what_matches(
    foreign: ForeignBackend, condition: Condition
) -> None:
    assert found(foreign, condition) == expected(FLAT_NODES, condition)


@many
@given(condition=flat)
def test_the_servers_engine_finds_in_llamaindex_payload_what_matches(
    engine: EdgeShard, condition: Condition
) -> None:
    wanted = as_edge_filter(flat_clause_of(condition))
    records, _ = engine.scroll(ScrollRequest(limit=1000, filter=wanted))
    assert {str(record.id) for record in records} == expected(FLAT_NODES, condition)


@pytest.mark.parametrize(
    ("key", "operator", "value"),
    [
        ("k", ANY_CASE, "a"),
        ("k", FilterOperator.EQ, 2**53),
        ("k", FilterOperator.NE, -(2**60)),
        ("k", FilterOperator.IN, ("a", 1e30)),
        ("k", FilterOperator.GT, 2**53),
        ("k", FilterOperator.CONTAINS, 2**53),
        ("k", FilterOperator.ALL, ()),
        ("k", FilterOperator.EQ, "lone\ud800"),
        ("k", TEXT, "lone\ud800"),
        ("doc_id", FilterOperator.EQ, "a"),
        ("document_id", FilterOperator.IS_EMPTY, None),
        ("ref_doc_id", FilterOperator.NE, "a"),
        ("_node_content", TEXT, "a"),
        ("_node_type", FilterOperator.IN, ("TextNode",)),
    ],
)
def test_what_llamaindex_payload_cannot_tell_is_refused_before_anything_is_sent(
    foreign: ForeignBackend, key: str, operator: FilterOperator, value: Value
) -> None:
    for condition in (Compare(key, operator, value), Not(AnyOf((Compare(key, operator, value),)))):
        with pytest.raises(UnsupportedFilterError):
            foreign.dense([1.0, 0.0], Search(3, condition))


@pytest.mark.parametrize("operator", SIZED)
def test_sizes_beyond_exact_numbers_are_refused(
    own: QdrantBackend, operator: FilterOperator
) -> None:
    with pytest.raises(UnsupportedFilterError, match="2\\*\\*53") as caught:
        own.dense([1.0, 0.0], Search(3, Compare("k", operator, 2**53)))
    assert caught.value.operator == operator.name
