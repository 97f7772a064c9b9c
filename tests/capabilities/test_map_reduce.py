import pytest
from pydantic import BaseModel

from llama_retrieval_ext.capabilities.map_reduce import Item, MapReduce, SourcesOf
from llama_retrieval_ext.errors import GenerationError
from llama_retrieval_ext.execution.context import Context, entered, note_degraded
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.llm.model import LanguageModel
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


def test_findings_stay_if_their_merging_gives_none() -> None:
    said = ['{"findings": ["a"]}', '{"findings": ["b"]}', '{"findings": []}']
    model = LanguageModel(ScriptedLLM(said, context_window=1400, num_output=100))

    def read(answer: _Answer, sources_of: SourcesOf) -> list[Item]:
        return [Item(text, sources_of([1])) for text in answer.findings]

    reading = MapReduce(model, "analysis", _Answer, lambda items, _: items, read)
    items = [Item("word " * 900, (name,)) for name in "ab"]
    with entered(Context()) as context:
        found = run(reading.plan(items))
    assert sorted(item.text for item in found) == ["a", "b"]
    (degraded,) = context.session.degraded
    assert "merging the findings failed: analysis: the LLM gave no findings" in degraded.reason
