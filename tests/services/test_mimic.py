"""Replies in the style of a person."""

import asyncio

import pytest

from llama_retrieval_ext.capabilities import StyleGenerator
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.services import MimicService
from llama_retrieval_ext.testing import FakeRetriever
from tests.cases import cases
from tests.services.conftest import ACME, BETA, factory, prompts_of


def test_mimic_imitates_the_person_in_the_conversation(kb: KnowledgeBase) -> None:
    made = factory(kb, ["Cheers!"] * 4)
    service = MimicService.of(made)
    reply = service.generate_response("Is leave granted?", user_id="ann", scope=ACME)
    assert reply.text == "Cheers!"
    assert {hit.node.ref_doc_id for hit in reply.hits} == {"chat-1", "chat-2"}
    service.generate_response("Is leave granted?", conversation_id="c1", scope=BETA)
    asyncio.run(service.agenerate_response("Is leave granted?", use_history=False, scope=ACME))
    first, second, third = prompts_of(made)
    assert "Cheers mate" in first
    assert "Dear" not in first
    assert "Dear" in second
    assert "Yo, leave" not in second
    assert "beta" not in first
    assert "acme" not in second
    assert "Cheers mate" not in third
    with pytest.raises(ConfigurationError, match="use_history=False uses none"):
        service.generate_response("x", use_history=False, user_id="ann", scope=ACME)


def test_a_function_without_a_temperature_replies_by_default_and_refuses_one() -> None:
    history = FakeRetriever([("m1", 0.9, "Cheers, works for me!")])
    service = MimicService(StyleGenerator(history, llm=lambda _: "Cheers!"))
    assert service.generate_response("Confirm the meeting").text == "Cheers!"
    with pytest.raises(ConfigurationError, match="takes no temperature"):
        service.generate_response("Confirm the meeting", temperature=0.8)


@cases(("temperature", "passed"), [(None, 0.8), (0.1, 0.1)])
def test_the_temperature_is_passed_to_a_function_that_takes_one(
    temperature: float | None, passed: float
) -> None:
    temperatures: list[float] = []

    def caller(prompt: str, temperature: float = 0.5) -> str:
        temperatures.append(temperature)
        return prompt[:5]

    MimicService(StyleGenerator(FakeRetriever([]), llm=caller)).generate_response("x", temperature)
    assert temperatures == [passed]
