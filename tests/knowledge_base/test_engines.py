"""LlamaIndex's query and chat engines over a knowledge base."""

from typing import Any

import pytest
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
)
from llama_index.core.chat_engine.types import ChatMode
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.response_synthesizers import Refine

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from tests.cases import cases
from tests.knowledge_base.test_searching import YEAR, filled

__all__ = ["filled"]


async def test_engines_answer_from_the_hits_of_the_knowledge_base(filled: KnowledgeBase) -> None:
    retriever = filled.as_retriever(similarity_top_k=2, filters=YEAR)
    assert len(retriever.retrieve("annual leave")) == 2
    for make in (filled.as_query_engine, filled.as_chat_engine):
        engine: Any = make(llm=MockLLM(), similarity_top_k=2, filters=YEAR)
        answered, answered_async = (
            (engine.query, engine.aquery)
            if make == filled.as_query_engine
            else (engine.chat, engine.achat)
        )
        for answer in (answered("annual leave?"), await answered_async("annual leave?")):
            assert [node.metadata["year"] for node in answer.source_nodes] == [2024, 2024]


@pytest.mark.parametrize("llm", [None, "gpt-5"])
def test_an_engine_without_an_llm_says_what_to_pass(filled: KnowledgeBase, llm: Any) -> None:
    for make in (filled.as_query_engine, filled.as_chat_engine):
        with pytest.raises(ConfigurationError, match=r"needs llm=, a LlamaIndex LLM"):
            make(llm=llm)


def test_the_query_engine_takes_llama_index_s_arguments(filled: KnowledgeBase) -> None:
    cut: Any = SimilarityPostprocessor(similarity_cutoff=2.0)  # above every score
    engine = filled.as_query_engine(
        llm=MockLLM(), streaming=True, node_postprocessors=[cut], response_mode="no_text"
    )
    assert engine.query("annual leave").source_nodes == []
    streamed: Any = filled.as_query_engine(llm=MockLLM(), streaming=True).query("annual leave")
    assert "".join(streamed.response_gen)


@pytest.mark.slow
@cases(
    ("mode", "kind"),
    [
        ("context", ContextChatEngine),
        ("condense_question", CondenseQuestionChatEngine),
        (ChatMode.CONDENSE_PLUS_CONTEXT, CondensePlusContextChatEngine),
        ("best", CondensePlusContextChatEngine),
    ],
)
def test_the_chat_engine_has_llama_index_s_modes_and_arguments(
    filled: KnowledgeBase, mode: Any, kind: type[object]
) -> None:
    history = [ChatMessage("Is there leave?")]
    engine: Any = filled.as_chat_engine(
        llm=MockLLM(), chat_mode=mode, chat_history=history, filters=YEAR
    )
    assert engine.chat_history == history
    assert {node.metadata["year"] for node in engine.chat("leave").source_nodes} == {2024}
    assert isinstance(engine, kind)


def test_the_engine_that_condenses_questions_takes_arguments_of_both(filled: KnowledgeBase) -> None:
    engine: Any = filled.as_chat_engine(
        llm=MockLLM(), chat_mode="condense_question", verbose=True, response_mode="refine"
    )
    assert isinstance(engine._query_engine._response_synthesizer, Refine)


@pytest.mark.slow
@cases(
    ("method", "arguments", "advice"),
    [
        ("as_query_engine", {"node_postprocessor": []}, "write node_postprocessors="),
        ("as_query_engine", {"retriever": None}, "no argument 'retriever'"),
        ("as_query_engine", {"response_mode": "compakt"}, r"must be one of \[.*'compact'"),
        ("as_chat_engine", {"chat_mode": "contxt"}, r"must be one of \[.*'context'"),
        ("as_chat_engine", {"chat_mode": "simple"}, r"SimpleChatEngine.*one of .*'context'"),
        ("as_chat_engine", {"chat_mode": "react"}, r"ReActAgent\(tools=\[retrieval_tool"),
        ("as_chat_engine", {"chat_mode": "openai"}, r"FunctionAgent\(tools=\[retrieval_tool"),
        ("as_chat_engine", {"system_promt": "Be brief."}, "write system_prompt="),
    ],
)
def test_a_wrong_argument_of_an_engine_gets_the_right_one(
    filled: KnowledgeBase, method: str, arguments: dict[str, Any], advice: str
) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        getattr(filled, method)(llm=MockLLM(), **arguments)
