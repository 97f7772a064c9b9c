"""Map-reduce over items with a language model."""

import pytest
from pydantic import BaseModel

from llama_retrieval_ext.capabilities.language_model import LanguageModel
from llama_retrieval_ext.capabilities.map_reduce import Item, MapReduce
from llama_retrieval_ext.errors import GenerationError
from llama_retrieval_ext.execution.context import note_degraded
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.testing import ScriptedLLM


class _Answer(BaseModel):
    findings: list[str]


def test_the_reason_of_a_failure_is_that_of_its_own_prompts() -> None:
    model = LanguageModel(ScriptedLLM([RuntimeError("503")]))
    reading = MapReduce(model, "analysis", _Answer, lambda items, _: items, lambda *_: [])
    plan = reading.plan([Item("text", ("a",))], lambda _: note_degraded("another", "unrelated"))
    with pytest.raises(GenerationError, match="503") as caught:
        run(plan)
    assert "unrelated" not in str(caught.value)
