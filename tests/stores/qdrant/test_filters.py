"""Filters mean exactly what `matches` says, on our payload and on LlamaIndex's, on each engine."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given
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
from llama_retrieval_ext.filters import AnyOf, Compare, Condition, Not, Value, comparisons, meanings
from llama_retrieval_ext.stores.embedded.filters import CONSTRUCTORS
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.qdrant.llama_index_store import LlamaIndexQdrantBackend
from llama_retrieval_ext.stores.qdrant.store import QdrantStore
from llama_retrieval_ext.stores.qdrant_common.filters import FlatFilters
from llama_retrieval_ext.stores.qdrant_common.points import point_id
from tests.stores.filters_contract import FiltersContract
from tests.stores.odd_metadata import (
    ANY_CASE,
    BIG,
    NUMBERS,
    STRINGS,
    TEXT,
    OddMetadata,
    examples,
    matching,
)
from tests.stores.qdrant.llama_index_stores import llama_index_store

pytestmark = pytest.mark.slow

NESTED = [None, True, ["a"], [3]]


def uuid(number: int) -> str:
    """LlamaIndex's class takes no other ids."""
    return str(point_id(f"n{number}"))


OURS = OddMetadata(
    strings=STRINGS,
    numbers=[*NUMBERS, *BIG],
    odd=[None, True, False, math.nan, math.inf, [], [None]],
    in_lists=NESTED,
)
NODES = OURS.nodes(200, seed=7)
FLAT = OddMetadata(strings=STRINGS, numbers=NUMBERS, sizes=NUMBERS, texts=[TEXT], least=1, dates=())
# More may be stored than a condition can name.
FLAT_NODES = OddMetadata(
    strings=STRINGS,
    numbers=[*NUMBERS, 2**53, 2**60],
    odd=[None, True, False, [], [None], [["a"], "a"], [["a"]], [{"k": "a"}]],
    in_lists=NESTED,
).nodes(200, seed=8, name=uuid)


@pytest.fixture(scope="module")
def corpus() -> Iterator[QdrantStore]:
    with QdrantStore("qdrant::memory:") as store:
        store.add(NODES)
        yield store


@pytest.fixture(scope="module")
def changing() -> Iterator[QdrantStore]:
    with QdrantStore("qdrant::memory:") as store:
        yield store


@pytest.fixture(scope="module")
def llama_index() -> Iterator[LlamaIndexQdrantBackend]:
    store = llama_index_store(QdrantClient(":memory:"))
    store.add(list(FLAT_NODES))
    yield LlamaIndexQdrantBackend(store)
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


class TestFilters(FiltersContract[QdrantStore]):
    odd, nodes = OURS, NODES


@examples(100)
@given(condition=FLAT.conditions)
def test_a_store_of_llamaindex_finds_what_matches(
    llama_index: LlamaIndexQdrantBackend, condition: Condition
) -> None:
    found = llama_index.dense([1.0, 0.0], Search(1000, condition)).function()
    assert {each.node_id for each in found} == matching(FLAT_NODES, condition)


def _means_boolean(compare: Compare) -> bool:
    values: Any = compare.value if isinstance(compare.value, tuple) else (compare.value,)
    return any(isinstance(meaning, bool) for meaning in meanings(values))


@examples(100)
@given(condition=FLAT.conditions)
def test_the_servers_engine_finds_in_llamaindex_payload_what_matches(
    engine: EdgeShard, condition: Condition
) -> None:
    # The binding of the engine in process sends a boolean as a number, the client of a server not.
    assume(not any(_means_boolean(comparison) for comparison in comparisons(condition)))
    flat = FlatFilters(CONSTRUCTORS).language.compile(condition)
    records, _ = engine.scroll(ScrollRequest(limit=1000, filter=flat))
    assert {str(record.id) for record in records} == matching(FLAT_NODES, condition)


@pytest.mark.parametrize(
    ("key", "operator", "value"),
    [
        ("k", ANY_CASE, "a"),
        ("k", FilterOperator.EQ, 2**53),
        ("k", FilterOperator.IN, ("a", 1e30)),
        ("k", FilterOperator.GTE, "2024-01-31"),
        ("k", FilterOperator.ALL, ()),
        ("doc_id", FilterOperator.EQ, "a"),
        ("ref_doc_id", FilterOperator.NE, "a"),
        ("_node_content", TEXT, "a"),
    ],
)
def test_conditions_that_llamaindex_payload_cannot_express_are_refused(
    llama_index: LlamaIndexQdrantBackend, key: str, operator: FilterOperator, value: Value
) -> None:
    for condition in (Compare(key, operator, value), Not(AnyOf((Compare(key, operator, value),)))):
        with pytest.raises(UnsupportedFilterError):
            llama_index.dense([1.0, 0.0], Search(3, condition))
