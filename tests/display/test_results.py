"""What a REPL, a notebook and a rich console show of results, hits and traces."""

import re
from pathlib import Path

from llama_index.core import Document
from llama_index.core.schema import TextNode

from llama_retrieval_ext import Hit, KnowledgeBase, SearchResult
from llama_retrieval_ext.hits import document_title
from llama_retrieval_ext.results import ProofEdge
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FixedRetriever
from tests.display.conftest import full_result, printed


def test_the_repr_of_a_result_is_a_summary_and_a_line_a_hit() -> None:
    lines = repr(full_result()).splitlines()
    assert lines[0] == "SearchResult('<leave>', 2 hits, 12.3 ms, degraded: reranker)"
    assert lines[1].startswith('  1. 0.6667  handbook.pdf p. 3  "<script>')
    assert lines[2] == "  2. 0.5  n2  'lunch'"
    assert max(map(len, lines)) < 120


def test_the_repr_of_a_long_result_is_cut() -> None:
    result = FixedRetriever([(f"n{n}", 1.0 - n / 100) for n in range(10)]).search("leave")
    lines = repr(result).splitlines()
    assert lines[0].startswith("SearchResult('leave', 10 hits, ")
    assert len(lines) == 7
    assert lines[-1] == "  … 5 more"
    assert repr(SearchResult([])) == "SearchResult(0 hits)"


def test_the_html_of_a_result_has_documents_ranks_scores_times_and_degradations() -> None:
    html = full_result()._repr_html_()
    first, second = html.split('class="card"')[1:]
    texts = [" ".join(re.sub(r"<[^>]+>", " ", card).split()) for card in (first, second)]
    assert texts[0].startswith("> 1 handbook.pdf p. 3 0.6667 vector #2 (0.3333) +0.0161")
    assert "keyword #1 (7.25) +0.0164" in texts[0]
    assert "keyword" not in texts[1]  # which did not find it
    assert "lang: &lt;en&gt;" in html
    assert "degraded: reranker: TimeoutError: &lt;late&gt;" in html
    assert "hybrid: 12.3 ms, 2 hits" in html
    assert "<mark>leave</mark>" in first


def test_a_result_without_contributions_shows_the_source() -> None:
    html = SearchResult([Hit(node=TextNode(id_="n", text="the text"), source="mine")])._repr_html_()
    assert ">mine</small>" in html
    assert "the text" in html


def test_a_rich_console_prints_values_without_obeying_their_text() -> None:
    shown = printed(full_result())
    assert "'<leave>', 2 hits, 12.3 ms, degraded: reranker" in shown
    assert "degraded: reranker: TimeoutError: <late>" in shown
    assert "#1 (7.25)" in shown
    assert "[bold]" in shown
    assert printed(full_result().trace).startswith("hybrid: 12.3 ms, 2 hits\n  <vector>: 2.0 ms")
    assert printed(full_result()[1]) == "0.5  n2  lunch\n"


def test_a_notebook_shows_a_knowledge_base_as_a_table(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        kb.add([Document(text="25 days of leave", id_="leave")])
        cells = re.findall(r"<td[^>]*>(.*?)</td>", kb._repr_html_())
        assert dict(zip(cells[::2], cells[1::2], strict=True))["documents"] == "1"
        assert "embed model" in kb.info()._repr_html_()
        assert repr(kb).startswith(f"KnowledgeBase({url!r}, 1 document, 1 node, ")
    assert "closed" in kb._repr_html_()
    assert repr(kb) == f"KnowledgeBase({url!r}, closed)"


def test_a_sentence_of_a_rule_a_memory_and_a_document_without_a_file_are_called_by_their_text() -> (
    None
):
    edge = ProofEdge("a", "NEEDS", "b", "a -NEEDS-> b")
    rule = Hit(node=TextNode(id_="measure/1adb8", text="深基坑开挖需要支护"), proof=(edge,))
    random = "c0a88d70-e22c-4c2f-9d6f-1adb891ceb6e"
    memory = Hit(node=TextNode(id_=random, text="The crane was inspected."))
    document = Hit(node=Document(id_=random, text="annual leave"))
    fact = Hit(node=TextNode(id_="deep/1", text="The pit is deep", metadata={"rule": "deep"}))
    titles = [document_title(hit) for hit in (rule, fact, memory, document)]
    assert titles[:2] == ["深基坑开挖需要支护", "The pit is deep"]
    assert titles[2:] == ["The crane was inspected.", "annual leave"]
    assert "证明: a -NEEDS-&gt; b" in rule._repr_html_()
    assert document.text == "annual leave"
    assert "annual leave" in repr(SearchResult([document]))
