"""Filters in the words of questions to a knowledge base: of its schema, of what a scope can see."""

from collections.abc import Iterator

import pytest
from llama_index.core import Document

import llama_retrieval_ext as ext
from llama_retrieval_ext.config.yaml import from_yaml, to_yaml
from llama_retrieval_ext.interpretation import Interpretation
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.knowledge_base_contract import INTERPRET_SCHEMA, InterpretContract
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.quick import in_turn

FILMS = [
    ("The Terminal", "A man lives in an airport.", ["Comedy"], ["Tom Hanks"], 2004),
    ("Toy Story 4", "Toys on a journey.", ["Animation", "Comedy"], ["Tom Hanks"], 2019),
    ("A Man Called Otto", "A man and his neighbours.", ["Comedy"], ["Tom Hanks"], 2022),
    ("The Post", "A newspaper and its papers.", ["Drama"], ["Meryl Streep", "Tom Hanks"], 2017),
]
QUESTION = "comedies after 2010 with Tom Hanks, not animation"
ALL = Scope(principals=["group:staff"])


@pytest.mark.parametrize(
    "engine",
    ["embedded", *in_turn("qdrant-server", "milvus-server", "elasticsearch")],
    indirect=True,
)
class TestInterpreting(InterpretContract):
    @pytest.fixture
    def kb(self, url: str) -> Iterator[KnowledgeBase]:
        model = FakeEmbedding(dim=2)
        with KnowledgeBase.open(url, embed_model=model, schema=INTERPRET_SCHEMA) as kb:
            yield kb


@pytest.fixture(scope="module")
def kb() -> Iterator[KnowledgeBase]:
    schema = Schema(facets=["genres", "actors"], numbers=["year"])
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=FakeEmbedding(dim=8), schema=schema
    ) as kb:
        for title, text, genres, actors, year in FILMS:
            metadata = {"title": title, "genres": genres, "actors": actors, "year": year}
            kb.add([Document(id_=title, text=text, metadata=metadata)], show_progress=False)
        hidden = {"title": "Secret", "genres": ["Western"], "actors": ["Jane Doe"], "year": 2020}
        kb.add([Document(text="A duel.", metadata=hidden)], allowed=["group:staff"])
        yield kb


def filters_of(interpretation: Interpretation) -> list[str]:
    return [source.filter for source in interpretation.sources]


@pytest.mark.slow
async def test_search_narrows_to_what_its_words_state_and_says_so(kb: KnowledgeBase) -> None:
    result = kb.search(QUESTION, interpret=True)
    assert [hit.metadata["title"] for hit in result] == ["A Man Called Otto"]
    assert any(hint.startswith("filtered by genres any ['Comedy']") for hint in result.hints)
    assert result.details["interpretation"] == kb.interpret(QUESTION).to_dict()["sources"]
    assert len(kb.search(QUESTION)) > 1
    assert [hit.node_id for hit in await kb.asearch(QUESTION, interpret=True)] == [
        hit.node_id for hit in result
    ]
    assert await kb.ainterpret(QUESTION) == kb.interpret(QUESTION)


async def test_question_for_what_held_then_finds_it_if_its_documents_say_until_when() -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding(dim=8)) as kb:
        question = "travel expenses as of 1 March 2021"
        kb.add([Document(id_="new", text="Travel expenses are paid in a week.")])
        assert kb.interpret(question).as_of is None
        old = Document(id_="old", text="Travel expenses are paid in a month.")
        kb.add([old], valid=lambda _: ("2020-01-01", "2022-01-01"))
        reading = kb.interpret(question)
        assert (reading.query, str(reading.as_of), reading.refused) == (
            *("travel expenses", "2021-03-01"),
            (),
        )
        result = kb.search(question, "keyword", interpret=True)
        assert {hit.node.ref_doc_id for hit in result} == {"old", "new"}
        assert "filtered by as_of 2021-03-01 ('as of 1 March 2021')" in result.hints
        later = await kb.asearch("travel expenses as of 1 March 2024", "keyword", interpret=True)
        assert {hit.node.ref_doc_id for hit in later} == {"new"}
        now = ext.Query(question, interpret=True, as_of="2024-01-01")
        assert {hit.node.ref_doc_id for hit in kb.search(now, "keyword")} == {"new"}


@pytest.mark.slow
def test_before_the_change_is_the_day_before_the_only_one_that_a_scope_sees() -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding(dim=8)) as kb:
        question = "travel expenses before the change"
        times = [("2002-11-01", "2021-09-01"), ("2021-09-01", "2024-05-01"), ("2024-05-01", "")]
        for number, (start, end) in enumerate(times):
            metadata = {"valid_from": start, **({"valid_to": end} if end else {})}
            text = f"Travel expenses, edition {number}. 差旅费。"
            document = Document(id_=str(number), text=text, metadata=metadata)
            kb.add([document], allowed=["ann"] if number == 2 else None, show_progress=False)
        everyone, ann = Scope(principals=[]), Scope(principals=["ann"])
        for asked, query in (
            (question, "travel expenses"),
            ("差旅费修订前的标准", "差旅费 标准"),
            ("before the amendment, what were travel expenses?", "what were travel expenses?"),
        ):
            reading = kb.interpret(asked, scope=everyone)
            assert (reading.query, str(reading.as_of)) == (query, "2021-08-31")
            assert kb.interpret(asked, scope=ann).as_of is None
        result = kb.search(question, "keyword", interpret=True, scope=everyone)
        assert [hit.node.ref_doc_id for hit in result] == ["0"]
        hint = (
            "'before the change' may be before any of 2 changes (2021-09-01, 2024-05-01); write "
            "when, such as 'valid before 2024-05-01'"
        )
        assert hint in kb.search(question, "keyword", interpret=True, scope=ann).hints
        assert hint in kb.interpret(question, scope=ann, llm=ScriptedLLM(["none"])).refused
        assert kb.interpret("lock it before the change of tyres", scope=everyone).as_of is None


def test_value_that_only_a_hidden_document_has_is_no_filter(kb: KnowledgeBase) -> None:
    question = "westerns with Jane Doe after 2010"
    assert filters_of(kb.interpret(question, scope=ALL)) == [
        "genres any ['Western']",
        "actors any ['Jane Doe']",
        "year > 2010",
    ]
    everyone = kb.interpret(question, scope=Scope(principals=[]))
    unknown = kb.interpret("zombies with Xavier Q after 2010", scope=Scope(principals=[]))
    assert (filters_of(everyone), everyone.refused) == (filters_of(unknown), unknown.refused)


def test_scopes_whose_values_have_one_hash_do_not_share_an_interpreter() -> None:
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=FakeEmbedding(dim=8), schema=Schema(facets=["k"])
    ) as kb:
        for tenant, number in (("a", -1), ("b", -2)):  # hash(-1) == hash(-2)
            document = Document(text="x", metadata={"k": number})
            kb.add([document], scope=Scope(tenant), show_progress=False)
            values = kb._curating.interpreting._interpreter(Scope(tenant)).fields["k"].values
            assert [*values] == [number]


def test_name_with_a_typing_error_is_corrected(kb: KnowledgeBase) -> None:
    assert filters_of(kb.interpret("comedies with Tom Hnaks")) == [
        "genres any ['Comedy']",
        "actors any ['Tom Hanks']",
    ]


def test_words_corrected_to_the_name_of_a_field_are_none() -> None:
    model = FakeEmbedding(dim=8)
    schema = Schema(facets=["brand"])
    with KnowledgeBase.open("embedded::memory:", embed_model=model, schema=schema) as kb:
        text = "A bike of this brand."
        kb.add([Document(text=text, metadata={"brand": "Canyon"})], show_progress=False)
        assert kb.interpret("brand canyon in October").filters is not None
        assert kb.interpret("grand canyon in October").filters is None


def test_filters_of_a_model_exist_and_come_from_the_question(kb: KnowledgeBase) -> None:
    answer = (
        "genres=comedy <- funny\nyear >= 2000 <- this century\nactors in (Tom Hanks) <- Hanks\n"
        "country=US <- films\nactors=Brad Pitt <- Hanks\nyear<2010 <- old\nyear~20 <- century"
    )
    question = "funny films with Hanks in this century about toys"
    found = kb.interpret(question, llm=ScriptedLLM([answer]))
    assert filters_of(found) == [
        "genres any ['Comedy']",
        "actors any ['Tom Hanks']",
        "year >= 2000",
    ]
    assert found.query == "films with in about toys"
    assert len(found.refused) == 4
    assert "'actors' has no value 'Brad Pitt'" in found.refused


def test_question_is_read_without_a_model_that_says_nothing_usable(kb: KnowledgeBase) -> None:
    pipeline = ext.Interpret(kb, llm=ScriptedLLM(["I cannot say."])) >> kb.retriever("keyword")
    result = pipeline.search(QUESTION)
    assert [hit.metadata["title"] for hit in result] == ["A Man Called Otto"]
    assert [part.where for part in result.degraded] == ["interpretation"]


def test_stage_is_written_as_yaml_and_read(kb: KnowledgeBase) -> None:
    pipeline = ext.Interpret(kb) >> kb.retriever("keyword")
    again = from_yaml(to_yaml(pipeline, kb), kb)
    assert isinstance(again, ext.Retriever)
    assert [hit.metadata["title"] for hit in again.search(QUESTION)] == ["A Man Called Otto"]
