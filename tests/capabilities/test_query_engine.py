"""What capabilities that write a text put into the prompt."""

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.capabilities import DataAnalyzer, RAGGenerator
from llama_retrieval_ext.capabilities.insight import Insight
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.testing import FakeRetriever, ScriptedLLM

INSIGHTS = [Insight(title="Leave grows", explanation="It was 20.", evidence=["2024"])]


def test_a_mapping_as_context_adds_sections_to_the_prompt() -> None:
    llm = ScriptedLLM(["Annual leave is 25 days [1]."])
    retriever = FakeRetriever([("leave", 0.9, "Annual leave is 25 days.", {"tenant_id": "acme"})])
    context = {"insights": INSIGHTS, "style": "formal", "case": TextNode(text="Case 7")}
    answer = RAGGenerator(retriever, llm=llm).generate("How much?", context, scope=Scope("acme"))
    (prompt,) = llm.prompts
    assert "[1]\nAnnual leave is 25 days." in prompt
    assert 'insights:\n[{"title": "Leave grows"' in prompt
    assert "style:\nformal" in prompt
    assert "case:\nCase 7" in prompt
    assert "[2]" not in prompt.partition("Passages:")[2]
    assert [citation.node_id for citation in answer.citations] == ["leave"]


def test_a_shortened_passage_ends_where_the_prompt_does() -> None:
    text = "Annual leave is 25 days. " * 400
    node = TextNode(id_="leave", text=text, start_char_idx=100, end_char_idx=100 + len(text))
    llm = ScriptedLLM(["Annual leave is 25 days [1]."], context_window=500, num_output=100)
    rag = RAGGenerator(FakeRetriever([]), llm=llm)
    (cited,) = rag.generate("How much?", [node]).citations
    shown = cited.hit.node.get_content()
    assert shown in llm.prompts[0]
    assert 100 < len(shown) < len(text)
    assert (cited.start, cited.end) == (100, 100 + len(shown))
    assert (node.text, node.end_char_idx) == (text, 100 + len(text))


def test_sections_are_no_passages_that_an_answer_can_cite() -> None:
    llm = ScriptedLLM(["Leave grows [1]."])
    answer = RAGGenerator(FakeRetriever([]), llm=llm).generate("How much?", {"insights": INSIGHTS})
    assert answer.text == "Leave grows [1]."
    assert answer.citations == ()
    assert "there is no passage [1]" in answer.problems[0]


def test_documents_to_analyse_are_no_mapping() -> None:
    with pytest.raises(ConfigurationError, match="documents takes texts, nodes and hits"):
        DataAnalyzer(llm=ScriptedLLM([])).analyze({"insights": "x"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metadata", "head"),
    [
        ({"title": "Handbook", "heading_path": "Leave > Sick"}, "[1] Handbook > Leave > Sick\n"),
        ({"file_path": "/hr/leave.md", "heading_path": "Leave"}, "[1] leave.md > Leave\n"),
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
