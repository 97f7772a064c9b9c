"""Facets: the same on every engine as counted by hand, up to date, exact or marked."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import Document

from llama_retrieval_ext import KnowledgeBase, Query, Schema, Scope
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.knowledge_base.columns import Columns
from llama_retrieval_ext.knowledge_base.facets import FacetRange, Facets, FacetValue, facets_of
from llama_retrieval_ext.testing import FakeEmbedding
from llama_retrieval_ext.testing.knowledge_base_contract import (
    FIELDS,
    FacetContract,
    as_data,
    facets_by_hand,
    random_nodes,
)
from tests.cases import cases
from tests.knowledge_base.engines import EMBEDDED


class TestFacets(FacetContract):
    @pytest.fixture
    def kb(self, url: str) -> Iterator[KnowledgeBase]:
        with KnowledgeBase.open(url, embed_model=FakeEmbedding(dim=2)) as kb:
            yield kb


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, -0.0, 2.0, "2", "", "e\u0301", "\u00e9", "2024-01-31", "2024-01-31T00Z"]),
)
METADATA = st.dictionaries(
    st.sampled_from(["genres", "year", "mixed"]), VALUES | st.lists(VALUES, max_size=3)
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(METADATA, max_size=8), st.integers(1, 4), st.booleans(), st.data())
def test_columns_count_as_by_hand(
    metadata: list[dict[str, object]], top: int, nodes: bool, data: st.DataObject
) -> None:
    stored = random_nodes(Random(len(metadata)), len(metadata))
    stored = [
        node.model_copy(update={"metadata": m}) for node, m in zip(stored, metadata, strict=True)
    ]
    columns = Columns.of(FIELDS, stored)
    for node in data.draw(st.lists(st.sampled_from(stored), unique_by=id)) if stored else ():
        columns.remove(node.node_id)
        stored.remove(node)
    mask = columns.mask(None)
    facets = facets_of(columns, mask, dict.fromkeys(FIELDS), Schema(), top=top, nodes=nodes)
    assert as_data(facets) == facets_by_hand(stored, Query(""), top=top, nodes=nodes)


def add(
    kb: KnowledgeBase, *metadata: Mapping[str, object], start: int = 0, text: str = "leave"
) -> None:
    documents = [
        Document(text=text, id_=f"d{number}", metadata=dict(each))
        for number, each in enumerate(metadata, start)
    ]
    kb.add(documents, show_progress=False)


def counts(facets: Facets, field: str) -> dict[object, int]:
    return {part.value: part.count for part in facets[field].values}


def test_filters_of_a_value_and_of_a_range_find_what_was_counted(kb: KnowledgeBase) -> None:
    metadata = [{"year": year, "tags": ["a", "b"][: year % 3]} for year in range(1990, 2000)]
    add(kb, *metadata, {"year": 1995, "tags": "a", "done": True})
    facets = kb.facets({"tags": None, "year": [1992, 1995], "done": None}, top=3)
    for facet in facets.values():
        parts: list[FacetValue | FacetRange] = [*facet.values, *facet.ranges]
        for part in parts:
            found = kb.search("leave", top_k=50, filters=facet.filters(part))
            assert len(found) == part.count, part
    assert [part.count for part in facets["year"].ranges] == [2, 3, 6]
    assert (facets["year"].min, facets["year"].max, facets["year"].distinct) == (1990, 1999, 10)


@EMBEDDED
def test_facets_are_those_of_now(open_kb: Callable[..., KnowledgeBase]) -> None:
    kb, other = open_kb(), open_kb()
    add(kb, {"tag": "a"}, {"tag": "b"})
    assert counts(kb.facets(["tag"]), "tag") == {"a": 1, "b": 1}
    add(other, {"tag": "c"})
    other.delete("d1")
    assert counts(kb.facets(["tag"]), "tag") == {"c": 1}
    other.clear()
    assert counts(kb.facets(["tag"]), "tag") == {}


def test_a_value_of_hidden_documents_does_not_exist(kb: KnowledgeBase) -> None:
    kb.add([Document(text="leave", metadata={"tag": "secret"})], allowed=["bob"])
    add(kb, {"tag": "open"})
    ann = Scope(principals=["ann"])
    assert counts(kb.facets(["tag"], scope=ann), "tag") == {"open": 1}
    assert counts(kb.facets(["tag"], "leave", scope=ann), "tag") == {"open": 1}
    assert kb.visible_values(["tag"], scope=ann) == {"tag": ["open"]}


def test_a_field_that_is_not_there_gets_a_hint(kb: KnowledgeBase) -> None:
    add(kb, {"genres": "drama"})
    facets = kb.facets(["genre", "genres"])
    assert facets.hints == ("no passage has the key 'genre'; there is 'genres'",)
    assert facets["genre"].values == ()


@EMBEDDED
def test_declared_numbers_have_ranges_beside_other_values(
    open_kb: Callable[..., KnowledgeBase],
) -> None:
    kb = open_kb()
    add(kb, {"pages": 3}, {"pages": 7}, {"pages": "unknown"})
    assert kb.facets(["pages"])["pages"].ranges == ()
    declared = open_kb(schema=Schema(numbers=["pages"])).facets(["pages"])
    assert [part.low for part in declared["pages"].ranges] == [3, 7]


@cases(
    ("fields", "options"),
    [
        ("tag", {}),
        ([], {}),
        (["tenant_id"], {}),
        ({"year": [2, 1]}, {}),
        ({"year": [1, "2024-01-31"]}, {}),
        ({"year": ["soon"]}, {}),
        ({"year": 0}, {}),
        (["tag"], {"top": 0}),
        (["tag"], {"first": 3}),
        (["tag"], {"query": "leave", "mode": "vector"}),
    ],
)
def test_wrong_questions_are_refused(
    kb: KnowledgeBase, fields: object, options: dict[str, object]
) -> None:
    with pytest.raises(ConfigurationError):
        kb.facets(fields, **options)  # type: ignore[arg-type]


async def test_facets_of_the_first_hits_count_those_only(kb: KnowledgeBase) -> None:
    add(kb, *({"tag": "a"} for _ in range(4)))
    facets = await kb.afacets(["tag"], Query("leave", top_k=1), "vector", first=3)
    assert (counts(facets, "tag"), facets.total, facets.approximate) == ({"a": 3}, 3, False)


def test_counts_below_a_limit_of_the_engine_are_marked(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(kb, *({"tag": "a"} for _ in range(4)))
    features = kb._backend.features
    limited = property(lambda _: replace(features, most_hits=2))
    monkeypatch.setattr(type(kb._backend), "features", limited)
    facets = kb.facets(["tag"], "leave")
    assert (counts(facets, "tag"), facets.approximate) == ({"a": 2}, True)
    assert "2 passages" in facets.reasons[0]
    assert "approximate" in repr(facets)


@EMBEDDED
def test_facets_need_the_scope_that_is_required(open_kb: Callable[..., KnowledgeBase]) -> None:
    with pytest.raises(ScopeRequiredError):
        open_kb(require_scope=True).facets(["tag"])
