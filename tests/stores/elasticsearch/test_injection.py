"""Nothing that stands in a value, a key, an id or a target of deletion gets beyond it."""

import random

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError, InvalidFilterError
from llama_retrieval_ext.filters import AllOf, Compare, Condition, matches, parse_filters
from llama_retrieval_ext.stores.elasticsearch.filters import compile_target
from llama_retrieval_ext.stores.elasticsearch.store import ElasticsearchVectorStore
from llama_retrieval_ext.stores.engine.query_modes import Target
from tests.stores.elasticsearch.msearch import Opener, ids_by_condition, ids_by_query

pytestmark = pytest.mark.slow

PARTS = [
    '"', "'", "\\", "*", "?", "{", "}", "[", "]", ":", ",", " OR ", " AND ", " NOT ", "(", ")", "~",
    "acme", "globex", "tenant_id", '"tenant_id"s', '"tenant_id"+', "doc", "n0", "n1", "_id", "_all",
    "match_all", '{"match_all":{}}', '"}},{"match_all":{}}', "\n", "\x00", "/", "..", "%", "_", "#",
    "<", ">", "|", "&", "^", "=", '"]} \n{"delete":{"_id":"n1"}}\n', "\u2028", "\ud800", "sha256:",
    "/_delete_by_query", "?q=*", "中文", "true", "null", "0",
]  # fmt: skip
STRINGS = [
    FilterOperator.EQ, FilterOperator.NE, FilterOperator.CONTAINS, FilterOperator.TEXT_MATCH,
    FilterOperator.TEXT_MATCH_INSENSITIVE,
]  # fmt: skip
LISTS = [FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL]
ACME = Compare("tenant_id", FilterOperator.EQ, "acme")
NODES = 40


def hostile(rng: random.Random) -> str:
    return "".join(rng.choice(PARTS) for _ in range(rng.randrange(1, 6)))


@pytest.fixture(scope="module")
def nodes() -> list[TextNode]:
    rng = random.Random(3)
    return [
        TextNode(
            id_=f"n{number}" if number % 4 else hostile(rng) + str(number),
            embedding=[1.0, 0.5],
            metadata={
                "tenant_id": "acme" if number % 2 else "globex",
                "word": hostile(rng),
                "tags": [hostile(rng), "x"],
                hostile(rng): hostile(rng),
            },
            relationships={
                NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"{hostile(rng)}{number % 5}")
            },
        )
        for number in range(NODES)
    ]


@pytest.fixture(scope="module")
def filled(open_store: Opener, nodes: list[TextNode]) -> ElasticsearchVectorStore:
    store = open_store()
    store.add(nodes)
    return store


def test_values_stay_values(filled: ElasticsearchVectorStore, nodes: list[TextNode]) -> None:
    rng = random.Random(1)
    for _ in range(4):
        asked: list[Condition] = []
        for _ in range(300):
            key = rng.choice(["tenant_id", "word", "tags", "doc", "terms", "id"])
            if rng.random() < 0.6:
                one = Compare(key, rng.choice(STRINGS), hostile(rng))
            else:
                many = tuple(hostile(rng) for _ in range(rng.randrange(3)))
                one = Compare(key, rng.choice(LISTS), many)
            asked.append(AllOf((ACME, one)))
        for condition, found in zip(asked, ids_by_condition(filled, asked), strict=True):
            assert found == {n.node_id for n in nodes if matches(condition, n.metadata)}, condition


def test_keys_are_refused_or_stay_keys(
    filled: ElasticsearchVectorStore, nodes: list[TextNode]
) -> None:
    rng = random.Random(2)
    asked: list[Condition] = []
    refused = 0
    for _ in range(600):
        one = MetadataFilter(key=hostile(rng), value="globex", operator=rng.choice(STRINGS))
        try:
            asked.append(AllOf((ACME, parse_filters(MetadataFilters(filters=[one])))))
        except InvalidFilterError:
            refused += 1
            # Were it let through, it would still be a key.
            asked.append(AllOf((ACME, Compare(one.key, one.operator, "globex"))))
    assert refused > 300
    for condition, found in zip(asked, ids_by_condition(filled, asked), strict=True):
        assert found == {n.node_id for n in nodes if matches(condition, n.metadata)}, condition


def test_ids_and_documents_stay_ids(
    filled: ElasticsearchVectorStore, nodes: list[TextNode]
) -> None:
    rng = random.Random(4)
    given = [hostile(rng) for _ in range(300)] + ["*", "_all", "", "n*", "n1,n2", "../n1"]
    by_id = ids_by_query(filled, [compile_target(Target(node_ids=[each])) or {} for each in given])
    by_document = ids_by_query(
        filled, [compile_target(Target(doc_ids=[each])) or {} for each in given]
    )
    for each, ids, of_document in zip(given, by_id, by_document, strict=True):
        assert ids == {node.node_id for node in nodes if node.node_id == each}
        assert of_document == {node.node_id for node in nodes if node.ref_doc_id == each}


def test_nothing_is_deleted_that_was_not_named(
    filled: ElasticsearchVectorStore, nodes: list[TextNode]
) -> None:
    rng = random.Random(5)
    named = {node.node_id for node in nodes} | {node.ref_doc_id for node in nodes}
    strangers = [each for each in (hostile(rng) for _ in range(400)) if each not in named]
    filled.delete_nodes([*strangers, "*", "_all", "n*", "n1,n2"])
    for each in strangers[:60]:
        filled.delete(each)
        filled.delete_nodes(
            [each], MetadataFilters(filters=[MetadataFilter(key="word", value=each)])
        )
    with pytest.raises(ConfigurationError):
        filled.delete("")
    assert filled.count() == NODES
    victims = [node.node_id for node in nodes[::7]]
    filled.delete_nodes(victims)
    assert {node.node_id for node in filled.get_nodes()} == {
        node.node_id for node in nodes
    }.difference(victims)
    filled.add(nodes)
