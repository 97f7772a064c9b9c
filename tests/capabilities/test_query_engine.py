"""What capabilities that write a text put into the prompt."""

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.capabilities import DataAnalyzer, RAGGenerator, StyleGenerator
from llama_retrieval_ext.capabilities.insight import Insight
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.testing import FakeRetriever, ScriptedLLM

LEAVE = FakeRetriever([("leave", 0.9, "Annual leave is 25 days.")])
INSIGHTS = [Insight(title="Leave grows", explanation="It was 20.", evidence=["2024"])]


def test_a_mapping_as_context_adds_sections_to_the_prompt() -> None:
    llm = ScriptedLLM(["Annual leave is 25 days [1]."])
    rag = RAGGenerator(LEAVE, llm=llm)
    answer = rag.generate("How much?", context={"insights": INSIGHTS, "style": "formal"})
    (prompt,) = llm.prompts
    assert "[1]\nAnnual leave is 25 days." in prompt
    assert 'insights:\n[{"title": "Leave grows"' in prompt
    assert "style:\nformal" in prompt
    assert "[2]" not in prompt.partition("Passages:")[2]
    assert [each.node_id for each in answer.citations] == ["leave"]


def test_sections_are_no_passages_that_an_answer_can_cite() -> None:
    llm = ScriptedLLM(["Leave grows [1]."])
    answer = RAGGenerator(FakeRetriever([]), llm=llm).generate("How much?", {"insights": INSIGHTS})
    assert answer.text == "Leave grows [1]."
    assert answer.citations == ()
    assert "there is no passage [1]" in answer.problems[0]


def test_sections_go_with_a_scope_as_passages_are_retrieved() -> None:
    llm = ScriptedLLM(["Annual leave is 25 days [1]."])
    retriever = FakeRetriever([("leave", 0.9, "Annual leave is 25 days.", {"tenant_id": "acme"})])
    rag = RAGGenerator(retriever, llm=llm)
    assert rag.generate("How much?", {"style": "formal"}, scope=Scope("acme")).is_supported


def test_a_mapping_as_style_references_adds_sections_to_the_prompt() -> None:
    llm = ScriptedLLM(["Cheers!"])
    history = FakeRetriever([("m1", 0.9, "Cheers, works for me!")])
    text = StyleGenerator(history, llm=llm).generate("Confirm", {"tone": ["warm", "short"]})
    assert [each.node_id for each in text.hits] == ["m1"]
    assert 'tone:\n["warm", "short"]' in llm.prompts[0]
    assert "Cheers, works for me!" in llm.prompts[0]


def test_a_node_in_a_section_is_its_text() -> None:
    llm = ScriptedLLM(["Annual leave is 25 days [1]."])
    RAGGenerator(LEAVE, llm=llm).generate("How much?", {"case": TextNode(text="Case 7")})
    assert "case:\nCase 7" in llm.prompts[0]


def test_documents_to_analyse_are_no_mapping() -> None:
    with pytest.raises(ConfigurationError, match="documents takes texts, nodes and hits"):
        DataAnalyzer(llm=ScriptedLLM([])).analyze({"insights": "x"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metadata", "head"),
    [
        ({"title": "Handbook", "heading_path": "Leave > Sick"}, "[1] Handbook > Leave > Sick\n"),
        ({"file_path": "/hr/leave.md", "heading_path": "Leave"}, "[1] leave.md > Leave\n"),
        ({"title": 3, "file_path": "/hr/leave.md"}, "[1] leave.md\n"),
        ({"title": ""}, "[1]\n"),
    ],
)
def test_a_passage_in_the_prompt_has_its_title_and_headings(
    metadata: dict[str, object], head: str
) -> None:
    llm = ScriptedLLM(["Annual leave is 25 days [1]."])
    hits = FakeRetriever([("leave", 0.9, "Annual leave is 25 days.", metadata)])
    RAGGenerator(hits, llm=llm).generate("How much?")
    assert f"{head}Annual leave is 25 days." in llm.prompts[0]
