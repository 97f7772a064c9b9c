"""The fakes that tests of users and of this package stand on."""

import asyncio
import threading

import numpy as np
import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import ChatMessage

from llama_retrieval_ext import Query, Scope
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.stores.encoding.vectors import ScoreRange
from llama_retrieval_ext.stores.engine.backend import Backend, EngineFeatures
from llama_retrieval_ext.testing import BackendContract, ScriptedLLM, sample_nodes
from llama_retrieval_ext.testing.fakes import (
    EVERYTHING,
    FakeBackend,
    FakeEmbedding,
    FakeRetriever,
    FixedRetriever,
    FlakyRetriever,
    HangingRetriever,
)


def test_a_flaky_retriever_fails_as_often_as_configured() -> None:
    flaky = FlakyRetriever([("a", 0.5)], failures=2)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            flaky.retrieve("query")
    assert node_ids(flaky.retrieve("query")) == ["a"]


def test_a_hanging_retriever_answers_when_it_is_released() -> None:
    hanging, found = HangingRetriever([("a", 0.5)]), list[str]()
    thread = threading.Thread(target=lambda: found.extend(node_ids(hanging.retrieve("query"))))
    thread.start()
    assert hanging.asked.wait(5)
    assert found == []
    hanging.release()
    thread.join(5)
    assert found == ["a"]


def test_a_fake_retriever_returns_the_same_objects_each_time() -> None:
    retriever = FakeRetriever([("a", 0.5)])
    retriever.retrieve("query")[0].score = 0.1
    assert retriever.retrieve("query")[0].score == 0.1


def test_a_fixed_retriever_honours_scope_and_top_k() -> None:
    rows = [(id_, 0.5, id_, {"tenant_id": "acme"}) for id_ in "ab"]
    retriever = FixedRetriever([*rows, ("c", 0.9)])
    assert node_ids(retriever.retrieve(Query("q", scope=Scope("acme"), top_k=1))) == ["a"]


def test_texts_with_common_words_have_near_embeddings() -> None:
    model = FakeEmbedding()
    leave, days, travel = (
        np.array(model.get_text_embedding(text)) for text in ("annual leave", "leave days", "trip")
    )
    assert np.linalg.norm(leave) == pytest.approx(1.0)
    assert leave @ days == pytest.approx(0.5)
    assert leave @ travel == pytest.approx(0.0)
    assert model.get_text_embedding("年假天数") != model.get_text_embedding("天数年假")


def test_another_seed_is_another_model() -> None:
    assert FakeEmbedding(seed=1).get_text_embedding("leave") != FakeEmbedding().get_text_embedding(
        "leave"
    )
    assert asyncio.run(FakeEmbedding().aget_query_embedding("leave")) == (
        FakeEmbedding().get_text_embedding("leave")
    )


def test_answers_come_in_order_by_every_method() -> None:
    llm = ScriptedLLM(["one", "two", "three", "four"])
    assert llm.complete("a").text == "one"
    assert asyncio.run(llm.acomplete("b")).text == "two"
    assert str(llm.chat([ChatMessage("c")]).message.content) == "three"
    assert [part.text for part in llm.stream_complete("d")][-1] == "four"
    assert [prompt for prompt in llm.prompts if len(prompt) == 1] == ["a", "b", "d"]


def test_a_function_can_answer_each_prompt() -> None:
    assert ScriptedLLM(str.upper).complete("leave").text == "LEAVE"


def test_an_error_in_the_script_is_raised_instead_of_an_answer() -> None:
    with pytest.raises(ConnectionError, match="down"):
        ScriptedLLM([ConnectionError("down")]).complete("a")


def test_a_prompt_beyond_the_script_is_an_error_with_the_prompt() -> None:
    with pytest.raises(LookupError, match="no answer left for prompt 1: 'leave'"):
        ScriptedLLM([]).complete("leave")


def test_a_prompt_that_leaves_no_room_for_the_answer_is_an_error() -> None:
    with pytest.raises(AssertionError, match="leaves no room for 10 in 20"):
        ScriptedLLM(["x"], context_window=20, num_output=10).complete("leave " * 30)


class TestFullBackend(BackendContract):
    @pytest.fixture
    def backend(self, embed_model: BaseEmbedding) -> Backend:
        return FakeBackend(sample_nodes(embed_model))


@pytest.mark.slow
class TestBackendWithoutKeywords(BackendContract):
    @pytest.fixture
    def backend(self, embed_model: BaseEmbedding) -> Backend:
        return FakeBackend(
            sample_nodes(embed_model), features=EngineFeatures(dense=EVERYTHING.dense)
        )


@pytest.mark.slow
class TestBackendWithoutVectors(BackendContract):
    @pytest.fixture
    def backend(self) -> Backend:
        return FakeBackend(
            sample_nodes(), features=EngineFeatures(keyword=ScoreRange("bm25", low=0.0))
        )
