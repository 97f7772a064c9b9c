"""A knowledge base with a schema: recorded, weighed by the query, extended from what is stored."""

from pathlib import Path

import pytest
from llama_index.core import Document

from llama_retrieval_ext import KnowledgeBase, Schema, Scope
from llama_retrieval_ext.config import from_yaml
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.copy import copy_knowledge_base
from llama_retrieval_ext.knowledge_base.kinds import Kind
from llama_retrieval_ext.testing.fakes import FakeEmbedding

FILMS = [
    Document(
        id_="cast",
        text="An engineer survives alone.",
        metadata={"title": "Cast Away", "actors": ["Tom Hanks"]},
    ),
    Document(
        id_="island",
        text="Tom Hanks is not in it.",
        metadata={"title": "The Island", "actors": ["Ewan McGregor"]},
    ),
    Document(id_="it", text="A clown.", metadata={"title": "It", "tenant": "x"}),
]
TITLES = Schema(text={"title": 3, "text": 1}, facets=["actors"])
ACTORS = Schema(text={"title": 3, "text": 1, "actors": 2}, facets=["actors"])


def _ids(kb: KnowledgeBase, query: str, fields: dict[str, float] | None = None) -> list[str]:
    hits = kb.search(query, mode="keyword", fields=fields).hits
    return [str(hit.node.ref_doc_id) for hit in hits]


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"embedded:{tmp_path / 'kb'}"
    with KnowledgeBase.open(url, embed_model=FakeEmbedding(), schema=TITLES) as kb:
        kb.add(FILMS, show_progress=False)
    return url


@pytest.mark.slow
def test_the_schema_is_recorded_and_another_one_replaces_it(url: str) -> None:
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        assert kb.schema == kb.info().schema == TITLES
        assert kb.info().unindexed == []
    other = Schema(text={"title": 1, "text": 5})
    with KnowledgeBase.open(url, embed_model=FakeEmbedding(), schema=other) as kb:
        assert kb.info().unindexed == []
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        assert kb.schema == other


def test_a_schema_is_recorded_before_the_first_document(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'empty'}"
    KnowledgeBase.open(url, embed_model=FakeEmbedding(), schema=ACTORS).close()
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        kb.add(FILMS, show_progress=False)
        assert (kb.schema, kb.info().unindexed) == (ACTORS, [])
        assert _ids(kb, "tom hanks", {"actors": 1}) == ["cast"]


@pytest.mark.slow
def test_fields_are_those_of_the_query(url: str) -> None:
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        assert _ids(kb, "tom hanks", {"text": 1}) == ["island"]
        assert _ids(kb, "the island engineer", {"title": 1}) == ["island"]
        retriever = kb.retriever("keyword", fields={"title": 1})
        assert [hit.node.ref_doc_id for hit in retriever.retrieve("it clown")] == ["it"]
        hybrid = kb.retriever("hybrid", fields={"title": 1}, alpha=0.0)
        assert [hit.node.ref_doc_id for hit in hybrid.retrieve("clown")] == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["keyword", "hybrid", "basic"])
def test_an_unknown_field_is_refused_with_those_that_are_searched(url: str, mode: str) -> None:
    with (
        KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb,
        pytest.raises(ConfigurationError, match=r"'titel', which is not searched.*'title'"),
    ):
        kb.search("it", mode, fields={"titel": 1})  # type: ignore[arg-type]  # one of the kinds


@pytest.mark.slow
def test_a_search_by_meaning_has_no_fields(url: str) -> None:
    with (
        KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb,
        pytest.raises(ConfigurationError, match="searches by meaning and has no fields"),
    ):
        kb.search("it", "vector", fields={"title": 1})


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["basic", "semantic"])
def test_fields_of_a_search_for_no_words_are_a_hint(url: str, mode: Kind) -> None:
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        for result in (
            kb.search("it", mode, fields={"title": 1}),
            kb.retriever(mode, fields={"title": 1}).search_many(["it"])[0],
        ):
            assert any(hint.startswith("fields has no effect") for hint in result.hints)
        assert kb.search("it", "advanced", fields={"title": 1}).hints == ()


@pytest.mark.slow
def test_a_preset_in_yaml_weighs_fields(url: str) -> None:
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        text = "version: 1\npipeline: {type: PRESET, fields: {text: 1}}"
        preset = from_yaml(text.replace("PRESET", "advanced, vector_weight: 0"), kb)
        assert preset.search("tom hanks")[0].node.ref_doc_id == "island"
        for without_words in ("advanced, fusion: rrf", "basic"):
            with pytest.raises(ConfigurationError, match="fields"):
                from_yaml(text.replace("PRESET", without_words), kb)


@pytest.mark.slow
def test_why_not_tells_what_words_the_fields_have(url: str) -> None:
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        ids = {node.ref_doc_id: node.node_id for node in kb.nodes()}
        explanation = kb.retriever("keyword", top_k=1).explain("hanks island engineer")
        answer = explanation.why_not(ids["cast"])
        shown = {name: {*words} for name, _, words in answer.words.fields}
        assert shown == {"*": {"engineer", "Hanks"}, "text": {"engineer"}}
        assert "no field has 'island'" in str(answer)


@pytest.mark.slow
def test_a_new_field_is_indexed_from_what_is_stored(url: str) -> None:
    broken = FakeEmbedding(fail=RuntimeError("nothing is to be embedded"))
    with KnowledgeBase.open(url, embed_model=broken, schema=ACTORS) as kb:
        assert list(kb.info().unindexed) == ["actors"]
        result = kb.search("hanks", mode="keyword")
        (hint,) = result.hints
        assert hint.startswith("not searched, since they are not indexed: 'actors'; call index")
        assert kb.index_fields() == len(FILMS)
        assert kb.index_fields() == 0
        assert _ids(kb, "hanks", {"actors": 1}) == ["cast"]
        assert kb.search("hanks", mode="keyword").hints == ()
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        assert (kb.info().unindexed, _ids(kb, "hanks", {"actors": 1})) == ([], ["cast"])


def test_a_field_that_no_visible_document_has_is_a_hint() -> None:
    schema = Schema(text={"title": 1, "tags": 1, "text": 1})
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding(), schema=schema) as kb:
        tagged = Document(id_="t", text="clown", metadata={"tags": ["horror"]})
        kb.add(FILMS, scope=Scope("acme"), show_progress=False)
        kb.add([tagged], scope=Scope("globex"), show_progress=False)
        of_acme = kb.search("clown", mode="keyword", fields={"tags": 1}, scope=Scope("acme"))
        assert any("no passage in this scope has the key 'tags'" in hint for hint in of_acme.hints)
        of_globex = kb.search("horror", mode="keyword", fields={"tags": 1}, scope=Scope("globex"))
        assert (len(of_globex.hits), of_globex.hints) == (1, ())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["keyword", "hybrid"])
def test_explain_has_the_share_of_each_field_with_its_words(url: str, mode: str) -> None:
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        explanation = kb.retriever(mode).explain("the islands of tom hanks")  # type: ignore[call-overload]
        (account,) = [one for one in explanation.accounts if one.hit.node.ref_doc_id == "island"]
        assert set(account.fields) == {"title", "text", "*"}
        assert sum(field["share"] for field in account.fields.values()) == pytest.approx(1.0)
        assert account.fields["title"]["words"] == ["Island"]
        assert account.fields["text"]["words"] == ["Tom", "Hanks"]
        assert account.to_dict()["fields"] == account.fields
        assert "of the keyword score (Island)" in repr(explanation)


@pytest.mark.slow
def test_a_copy_has_the_fields_of_its_source_or_its_own(url: str, tmp_path: Path) -> None:
    for name, schema in (("same", None), ("other", ACTORS)):
        target = f"embedded:{tmp_path / name}"
        copy_knowledge_base(url, target, schema=schema, show_progress=False)
        with KnowledgeBase.open(target, embed_model=FakeEmbedding()) as kb:
            assert (kb.schema, kb.info().unindexed) == (schema or TITLES, [])
