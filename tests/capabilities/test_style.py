import pytest

from llama_retrieval_ext import KnowledgeBase
from llama_retrieval_ext.capabilities import StyleGenerator
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM
from tests.capabilities.conftest import ACME


def test_style_examples_are_of_the_scope_and_do_not_repeat(kb: KnowledgeBase) -> None:
    llm = ScriptedLLM(["<think>hm</think>Done."])
    style = StyleGenerator(kb.retriever("vector"), llm=llm, examples=2)
    text = style.generate("Write about leave", scope=ACME)
    assert text.text == "Done."
    assert len(text.hits) == 2
    assert "beta" not in llm.prompts[0]


def test_style_references_are_chosen_by_similarity_and_diversity() -> None:
    near = "Leave is great, take a lot of leave!"
    references = ["Lunch at noon.", near, f"{near} Yes", "Leave the office early, folks!"]
    llm = ScriptedLLM(["Ok."] * 2)
    style = StyleGenerator(llm=llm, embed_model=FakeEmbedding(), examples=2)
    chosen = [hit.node.get_content() for hit in style.generate("leave", references).hits]
    assert chosen[0] == near
    assert f"{near} Yes" not in chosen
    plain = StyleGenerator(llm=llm, examples=2).generate("leave", references)
    assert [hit.node.get_content() for hit in plain.hits] == ["Lunch at noon.", near]


def test_a_scope_without_a_retrieval_is_refused_with_its_reason(kb: KnowledgeBase) -> None:
    llm = ScriptedLLM([])
    with pytest.raises(ConfigurationError, match="there is no retriever"):
        StyleGenerator(llm=llm).generate("a task", scope=ACME)
    with pytest.raises(ConfigurationError, match="with style_references= nothing is retrieved"):
        StyleGenerator(kb.retriever(), llm=llm).generate("a task", ["Tea"], scope=ACME)
