"""Functions as models."""

import asyncio
from threading import Event

import pytest

from llama_retrieval_ext.capabilities import StyleGenerator
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.llm.functions import CallableLLM


def test_temperature_is_set_for_one_answer_or_refused() -> None:
    temperatures: list[float] = []

    def caller(prompt: str, temperature: float = 0.1) -> str:
        temperatures.append(temperature)
        return prompt[:2]

    style = StyleGenerator(llm=CallableLLM(caller))
    style.generate("a task", temperature=0.9)
    style.generate("a task")
    assert temperatures == [0.9, 0.1]
    with pytest.raises(ConfigurationError, match="takes no temperature"):
        StyleGenerator(llm=lambda prompt: prompt).generate("a task", temperature=0.9)
    with pytest.raises(ConfigurationError, match="temperature must be"):
        style.generate("a task", temperature=-1)


def test_a_function_as_model_is_sync_or_async_in_any_loop() -> None:
    async def caller(prompt: str) -> str:
        await asyncio.sleep(0)
        return prompt[:5]

    style = StyleGenerator(llm=caller)

    async def both() -> tuple[str, str]:  # the sync way also inside a running loop
        return style.generate("x").text, (await style.agenerate("x")).text

    assert asyncio.run(both()) == ("Write", "Write")
    assert [each.text for each in StyleGenerator(llm=lambda p: p[:5]).stream("x")][-1] == "Write"


async def test_functions_that_hang_leave_threads_to_the_application() -> None:
    ending = Event()
    llm = CallableLLM(lambda prompt: prompt * ending.wait(20))
    hanging = [asyncio.ensure_future(llm.acomplete("x")) for _ in range(40)]
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 5) == "free"
    ending.set()
    assert {each.text for each in await asyncio.gather(*hanging)} == {"x"}
