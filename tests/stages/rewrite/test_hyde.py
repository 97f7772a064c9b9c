"""Vector search goes to where documents that answer the query would be."""
# ruff: noqa: RUF001 - Chinese punctuation

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import RRF, Query, VectorRetriever
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.stages.rewrite.hyde import HyDE, HyDEFanOut, passage_in
from llama_retrieval_ext.testing import FakeBackend, FakeEmbedding, FakeRetriever, ScriptedLLM
from tests.cases import cases

PASSAGE = "Trains come before planes when travel is booked."


@pytest.fixture
def source() -> FakeRetriever:
    return FakeRetriever([("a", 0.9)])


def test_hyde_embeds_the_query_with_n_passages(source: FakeRetriever) -> None:
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


def test_hyde_searches_with_the_mean_embedding(
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


@pytest.mark.parametrize(
    ("stage", "query", "embedded"),
    [
        (HyDE(ScriptedLLM([PASSAGE]), include_original=False), Query("travel"), [PASSAGE]),
        (HyDE(ScriptedLLM([PASSAGE] * 2), n=2), Query("travel"), ["travel", PASSAGE]),
        (
            HyDE(ScriptedLLM([PASSAGE])),
            Query("travel", custom_embedding_strs=["trips"]),
            ["trips", PASSAGE],
        ),
    ],
    ids=["without the original", "equal passages", "embedding texts of the query"],
)
def test_hyde_embeds_the_original_texts_and_each_passage_once(
    stage: HyDE, query: Query, embedded: list[str], source: FakeRetriever
) -> None:
    (stage >> source).retrieve(query)
    assert source.calls[0].embedding_strs == embedded


def test_a_failing_passage_leaves_the_others(source: FakeRetriever) -> None:
    llm = ScriptedLLM([PASSAGE, ValueError("busy")])
    result = (HyDE(llm, n=2) >> source).search("travel")
    assert source.calls[0].embedding_strs == ["travel", PASSAGE]
    assert [(part.where, part.reason) for part in result.degraded] == [
        ("HyDE", "1 of 2 answers are missing; ValueError: busy")
    ]


def test_hyde_keeps_an_embedding_of_the_query(source: FakeRetriever) -> None:
    llm = ScriptedLLM([])
    result = (HyDE(llm) >> source).search(Query("travel", embedding=[1.0]))
    assert source.calls[0].embedding == [1.0]
    assert llm.prompts == []
    assert result.degraded == ()


def test_the_prompt_of_hyde_holds_the_query_and_the_language() -> None:
    llm = ScriptedLLM([PASSAGE])
    (HyDE(llm) >> FakeRetriever()).retrieve("how to {travel}?")
    (prompt,) = llm.prompts
    assert "how to {travel}?" in prompt
    assert "language of the question" in prompt
    assert "与问题相同的语言" in prompt


@cases(
    "answer",
    [
        PASSAGE,
        f"Passage: {PASSAGE}",
        f"文档：{PASSAGE}",
        f"```\n{PASSAGE}\n```",
        f"Here is a passage that answers the question:\n\n{PASSAGE}",
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


@cases("answer", ["", "0", "9", "...", "```\n```", "<think>hm", "Sorry, no."])
def test_an_answer_without_a_passage_gives_none(answer: str) -> None:
    assert passage_in(answer) == ""


def test_hyde_refuses_impossible_arguments() -> None:
    with pytest.raises(ConfigurationError, match="n must be a whole number"):
        HyDE(ScriptedLLM([]), n=0)
    with pytest.raises(ConfigurationError, match=r"\{query\}"):
        HyDE(ScriptedLLM([]), prompt="Write a passage.")
    with pytest.raises(ConfigurationError, match="pass a LlamaIndex LLM"):
        HyDE(None)  # type: ignore[arg-type]


FAN_OUT = ["Staff have 25 days.", "Leave is 20 days."]


@pytest.mark.parametrize("original", [["annual leave"], []], ids=["with", "without"])
def test_hyde_fan_out_searches_the_query_and_each_passage(
    original: list[str], source: FakeRetriever
) -> None:
    stage = HyDEFanOut(ScriptedLLM(FAN_OUT), n=2, include_original=bool(original))
    result = (stage >> source >> RRF()).search("annual leave")
    assert {call.query_str for call in source.calls} == {*original, *FAN_OUT}
    assert len(result.hits[0].contributions) == 2 + len(original)
    assert result.details["hyde_queries_count"] == 2
    assert result.degraded == ()


def test_hyde_fan_out_uses_the_embedding_of_the_query_for_the_query_alone(
    source: FakeRetriever,
) -> None:
    query = Query("annual leave", embedding=[1.0])
    (HyDEFanOut(ScriptedLLM(FAN_OUT)) >> source >> RRF()).retrieve(query)
    embedded = {call.query_str: call.embedding for call in source.calls}
    assert embedded == {"annual leave": [1.0], FAN_OUT[0]: None}
