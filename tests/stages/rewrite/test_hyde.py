"""Vector search goes to where documents that answer the query would be."""
# ruff: noqa: RUF001 - Chinese punctuation

import asyncio

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.store_retriever import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rewrite.hyde import HyDE, passage_in
from llama_retrieval_ext.testing.fake_backend import FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.cases import each_case

PASSAGE = "Trains come before planes when travel is booked."


@pytest.fixture
def source() -> FakeRetriever:
    return FakeRetriever([("a", 0.9)])


def test_c4_the_query_and_n_documents_are_embedded_together(source: FakeRetriever) -> None:
    llm = ScriptedLLM(["Staff have 25 days.", "Leave is 20 days."])
    result = (HyDE(llm, n=2) >> source).search("annual leave")
    (call,) = source.calls
    assert call.query_str == "annual leave"
    assert sorted(call.embedding_strs) == [
        "Leave is 20 days.",
        "Staff have 25 days.",
        "annual leave",
    ]
    assert result.degraded == ()
    assert isinstance(result.details["hyde_queries"], list)
    assert sorted(result.details["hyde_queries"]) == ["Leave is 20 days.", "Staff have 25 days."]
    assert result.details["hyde_queries_count"] == 2


def test_the_mean_embedding_decides_what_is_near(
    corpus: list[TextNode], embed_model: FakeEmbedding
) -> None:
    vector = VectorRetriever(FakeBackend(corpus), embed_model=embed_model, top_k=1)
    query = "customer visit"
    assert node_ids(vector.retrieve(query)) != ["globex-travel"]
    hits = (HyDE(ScriptedLLM([PASSAGE])) >> vector).retrieve(query)
    assert node_ids(hits) == ["globex-travel"]
    first, second = (embed_model.get_query_embedding(text) for text in (query, PASSAGE))
    mean = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
    expected = vector.retrieve(Query(query, embedding=mean))
    assert hits[0].score == pytest.approx(expected[0].score)


def test_keyword_search_keeps_the_words_of_the_query(
    corpus: list[TextNode], embed_model: FakeEmbedding
) -> None:
    vector = VectorRetriever(FakeBackend(corpus), embed_model=embed_model)
    keyword = KeywordRetriever(FakeBackend(corpus))
    hybrid = HyDE(ScriptedLLM([PASSAGE])) >> (vector | keyword) >> RRF()
    by_keyword = {
        hit.node_id
        for hit in hybrid.search("canteen").hits
        for part in hit.contributions
        if part.leg == "keyword"
    }
    assert by_keyword == set(node_ids(keyword.retrieve("canteen")))


def test_the_original_may_be_left_out(source: FakeRetriever) -> None:
    (HyDE(ScriptedLLM([PASSAGE]), include_original=False) >> source).retrieve("travel")
    assert source.calls[0].embedding_strs == [PASSAGE]


def test_equal_documents_count_once(source: FakeRetriever) -> None:
    (HyDE(ScriptedLLM([PASSAGE, PASSAGE]), n=2) >> source).retrieve("travel")
    assert source.calls[0].embedding_strs == ["travel", PASSAGE]


def test_one_document_that_fails_leaves_the_others(source: FakeRetriever) -> None:
    llm = ScriptedLLM([PASSAGE, ValueError("busy")])
    result = (HyDE(llm, n=2) >> source).search("travel")
    assert source.calls[0].embedding_strs == ["travel", PASSAGE]
    assert [(part.where, part.reason) for part in result.degraded] == [
        ("HyDE", "1 of 2 answers are missing; ValueError: busy")
    ]


def test_c4_an_embedding_that_the_query_brings_is_kept(source: FakeRetriever) -> None:
    llm = ScriptedLLM([])
    result = (HyDE(llm) >> source).search(Query("travel", embedding=[1.0]))
    assert source.calls[0].embedding == [1.0]
    assert llm.prompts == []
    assert result.degraded == ()


def test_embedding_texts_that_the_query_brings_count_as_the_original(source: FakeRetriever) -> None:
    query = Query("travel", custom_embedding_strs=["trips"])
    (HyDE(ScriptedLLM([PASSAGE])) >> source).retrieve(query)
    assert source.calls[0].embedding_strs == ["trips", PASSAGE]
    assert query.embedding_strs == ["trips"]


def test_c4_the_same_query_costs_one_call_of_the_model(source: FakeRetriever) -> None:
    llm = ScriptedLLM([PASSAGE])
    retriever = HyDE(llm) >> source
    first = retriever.search("travel")
    second = asyncio.run(retriever.asearch("travel"))
    assert len(llm.prompts) == 1
    assert first.details == second.details


def test_the_prompt_has_the_query_and_the_wish_for_its_language() -> None:
    llm = ScriptedLLM([PASSAGE])
    (HyDE(llm) >> FakeRetriever()).retrieve("how to {travel}?")
    (prompt,) = llm.prompts
    assert "how to {travel}?" in prompt
    assert "language of the question" in prompt
    assert "与问题相同的语言" in prompt


@each_case(
    "answer",
    [
        PASSAGE,
        f"Passage: {PASSAGE}",
        f"**Passage:** {PASSAGE}",
        f"文档：{PASSAGE}",
        f"```\n{PASSAGE}\n```",
        f"```markdown\n{PASSAGE}",
        f"Here is a passage that answers the question:\n\n{PASSAGE}",
        f"Sure! Here is one:\n```\n{PASSAGE}\n```",
        f"<think>Trains? Planes?</think>\n{PASSAGE}",
        f"<passage>{PASSAGE}</passage>",
    ],
)
def test_the_passage_is_found_in_the_answer(answer: str) -> None:
    assert passage_in(answer) == PASSAGE


def test_a_passage_keeps_its_lines_and_its_code() -> None:
    passage = "Install it:\n\n```sh\npip install x\n```\n\nThen import it."
    assert "pip install x" in passage_in(passage)
    assert "Then import it." in passage_in(passage)
    assert passage_in("年假：每年二十五天。\n五天可结转。").endswith("五天可结转。")


@each_case("answer", ["", "0", "9", "...", "```\n```", "<think>hm", "Sorry, no."])
def test_what_holds_no_passage_gives_none(answer: str) -> None:
    assert passage_in(answer) == ""


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="n must be a whole number"):
        HyDE(ScriptedLLM([]), n=0)
    with pytest.raises(ConfigurationError, match=r"\{query\}"):
        HyDE(ScriptedLLM([]), prompt="Write a passage.")
    with pytest.raises(ConfigurationError, match="pass a LlamaIndex LLM"):
        HyDE(None)  # type: ignore[arg-type]
