"""What every engine promises of hostile texts: values, keys, ids and documents mean themselves."""

import random
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)

from llama_retrieval_ext.errors import ConfigurationError, InvalidFilterError
from llama_retrieval_ext.filters import AllOf, Compare, Condition, parse_filters
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.stores.open import source_of
from tests.stores.odd_metadata import MANY, ONE, matching

S = TypeVar("S", bound=EngineStore)

# Syntax of all engines, names of their fields, and ids of nodes that are there.
PIECES = [
    '"', "'", "\\", '\\"', "\\'", "`", "*", "?", "%", "_", "$", "#", "~", "^", "|", "||", "&", "<",
    ">", "=", "==", "!=", ":", ";", ",", ".", "/", "..", "../", "//", "--", "/*", "{", "}", "{x}",
    "(", ")", "[", "]", "[]", "[0]", "in [", " or ", " and ", " not ", " OR ", " AND ", " NOT ",
    "\n", "\r", "\t", "\x00", "\u2028", "\ue000", "\ue041", "\ud800", "é", "界", "0", "true",
    "null", "1==1", "in", "like", "exists", "must_not", "acme", "globex", "tenant_id", "tenant",
    "id", "_id", "doc", "doc_id", "meta", "$meta", "s_k", "n0", "n1", "n2", "x.md", "_all",
    "match_all", ":memory:", "sha256:", "?q=*", '"meta"."tenant_id"', '"tenant_id"s',
    '"tenant_id"+', '{"match_all":{}}', '"}},{"match_all":{}}', '"]} \n{"delete":{"_id":"n1"}}\n',
    "/_delete_by_query", '{"$ne": 1}', '"} , "should": [{', '" or id != "', "' or 1==1 or '",
    "Hello' or tenant == 'b' or s like 'q", '") or (id != "',
    'doc0"] or tenant == "b" or doc_id in ["x', 'nope"] or doc_id not in ["zz', '\\" or id != \\"',
]  # fmt: skip
STRINGS = [*ONE, FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE]
ACME = Compare("tenant_id", FilterOperator.EQ, "acme")
KEYS = ["tenant_id", "word", "tags", "doc", "terms", "id"]


def hostile(rng: random.Random) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 6)))


def _nodes() -> list[TextNode]:
    rng = random.Random(3)
    return [
        TextNode(
            id_=f"n{number}" if number % 4 else hostile(rng) + str(number),
            text="leave",
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
        for number in range(40)
    ]


NODES = _nodes()
DOCUMENTS = {node.ref_doc_id for node in NODES}


class InjectionContract(Generic[S]):
    """Subclass it in a module with a fixture `victim`: a store that contains `NODES`.

    Attributes:
        attempts: How many conditions are tried.
        targets: How many ids and documents are read and deleted.
        any_key: Whether a condition may have any key; else only those that filters may have.
    """

    attempts: ClassVar[int] = 600
    targets: ClassVar[int] = 100
    any_key: ClassVar[bool] = True

    def found(self, store: S, conditions: Sequence[Condition]) -> list[set[str]]:
        """The ids of the nodes that each condition finds."""
        backend = source_of(store).backend
        calls = [backend.dense([1.0, 0.5], Search(100, condition)) for condition in conditions]
        return [{each.node_id for each in call.function()} for call in calls]

    def test_a_hostile_value_is_compared_as_text(self, victim: S) -> None:
        rng = random.Random(1)
        conditions = []
        for _ in range(self.attempts):
            operator = rng.choice([*STRINGS, *MANY])
            texts = [hostile(rng) for _ in range(rng.randrange(1, 3))]
            value = tuple(texts) if operator in MANY else texts[0]
            conditions.append(AllOf((ACME, Compare(rng.choice(KEYS), operator, value))))
        self._check(victim, conditions)

    def test_a_hostile_key_is_refused_or_compared_as_a_key(self, victim: S) -> None:
        rng = random.Random(2)
        conditions, refused = [], 0
        for _ in range(self.attempts):
            only = MetadataFilter(key=hostile(rng), value="globex", operator=rng.choice(STRINGS))
            group = MetadataFilters(filters=[only], condition=rng.choice(list(FilterCondition)))
            try:
                conditions.append(AllOf((ACME, parse_filters(group))))
            except InvalidFilterError:
                refused += 1
                if self.any_key:
                    conditions.append(AllOf((ACME, Compare(only.key, only.operator, "globex"))))
        assert self.attempts / 20 < refused < self.attempts
        self._check(victim, conditions)

    def _check(self, store: S, conditions: Sequence[Condition]) -> None:
        for condition, found in zip(conditions, self.found(store, conditions), strict=True):
            assert found == matching(NODES, condition), condition

    def test_a_hostile_id_or_document_selects_only_itself(self, victim: S) -> None:
        rng = random.Random(4)
        names = [node.node_id for node in NODES]
        for name in [*map(hostile, [rng] * self.targets), "*", "_all", "n*", "n1,n2", "../n1"]:
            assert [each.node_id for each in victim.get_nodes([name])] == [name] * (name in names)
            query = VectorStoreQuery(query_embedding=[1.0, 0.5], doc_ids=[name])
            assert (victim.query(query).ids != []) is (name in DOCUMENTS)
        assert [node.node_id for node in victim.get_nodes(names)] == names

    def test_a_hostile_id_or_document_deletes_only_itself(self, victim: S) -> None:
        rng = random.Random(5)
        known = {node.node_id for node in NODES} | DOCUMENTS
        unknown = [each for each in map(hostile, [rng] * self.targets) if each not in known]
        victim.delete_nodes([*unknown, "*", "_all", "n*", "n1,n2"])
        for each in unknown[: self.targets // 2]:
            victim.delete(each)
            only = MetadataFilter(key="word", value=each)
            victim.delete_nodes([each], MetadataFilters(filters=[only]))
        with pytest.raises(ConfigurationError):
            victim.delete("")
        assert victim.count() == len(NODES)
        first = NODES[0].node_id
        victim.delete_nodes([first])
        assert victim.get_nodes([first]) == []
        assert victim.count() == len(NODES) - 1
        victim.add(NODES[:1])
