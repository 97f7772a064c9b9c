"""What a REPL, a notebook and a rich console show of results, hits, traces and reports."""

import io
import re
from pathlib import Path

from llama_index.core import Document
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from rich.console import Console

from llama_retrieval_ext import Contribution, Hit, KnowledgeBase, SearchResult
from llama_retrieval_ext.knowledge_base.report import CopyReport, IngestionReport
from llama_retrieval_ext.pipeline.explanation import explanation_of
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FixedRetriever
from llama_retrieval_ext.trace import Degradation, Trace
from tests.cases import each_case

MARKUP = "<script>alert('[bold]')</script>"


def full_result() -> SearchResult:
    node = TextNode(
        id_="n1",
        text=f"{MARKUP} annual leave " * 40,
        metadata={"file_name": "handbook.pdf", "page_label": "3", "lang": "<en>"},
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="handbook.pdf_part_2")},
    )
    parts = (
        Contribution("vector", 2, 1 / 3, 0.5, 1 / 62),
        Contribution("keyword", 1, 7.25, 0.5, 1 / 61),
    )
    first = Hit(node=node, score=2 / 3, source="hybrid", contributions=parts)
    second = Hit(
        node=TextNode(id_="n2", text="lunch"), score=0.5, source="hybrid", contributions=parts[:1]
    )
    trace = Trace("hybrid", duration_s=0.0123, count=2)
    trace.children.append(Trace("<vector>", duration_s=0.002, error="OSError: <down>"))
    return SearchResult(
        [first, second], (Degradation("reranker", "TimeoutError: <late>"),), trace, query="<leave>"
    )


def printed(value: object) -> str:
    console = Console(file=io.StringIO(), width=160, color_system=None)
    console.print(value)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


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


def test_search_and_stream_say_what_was_searched_for() -> None:
    retriever = FixedRetriever([("a", 0.9)])
    assert retriever.search("leave").query == "leave"
    assert retriever.search("leave").to_dict()["query"] == "leave"
    assert {result.query for result in retriever.stream("leave")} == {"leave"}


def test_the_html_of_a_result_has_documents_ranks_scores_times_and_what_is_missing() -> None:
    html = full_result()._repr_html_()
    first, second = html.split('class="card"')[1:]
    texts = [" ".join(re.sub(r"<[^>]+>", " ", card).split()) for card in (first, second)]
    assert texts[0].startswith("> 1 handbook.pdf p. 3 hybrid 0.6667 vector #2 (0.3333) +0.0161")
    assert "keyword #1 (7.25) +0.0164" in texts[0]
    assert "keyword" not in texts[1]  # which did not find it
    assert "lang: &lt;en&gt;" in html
    assert "degraded: reranker: TimeoutError: &lt;late&gt;" in html
    assert "hybrid: 12.3 ms, 2 hits" in html
    assert "<mark>leave</mark>" in first


@each_case(
    "value",
    [
        full_result(),
        full_result()[0],
        full_result().trace,
        IngestionReport(added=1, skipped={MARKUP: MARKUP}, failures={MARKUP: OSError(MARKUP)}),
        CopyReport(copied=1, failures={MARKUP: OSError(MARKUP)}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_html_is_escaped_and_self_contained(value: object) -> None:
    html = value._repr_html_()  # type: ignore[attr-defined]
    assert "<script" not in html
    assert "<down>" not in html
    assert not re.search(r"\b(src|href|id|on\w+)=|@import|url\(", html)
    opened, closed = re.findall(r"<(\w+)", html), re.findall(r"</(\w+)", html)
    assert sorted(opened) == sorted([*closed, *["br"] * opened.count("br")][: len(opened)])


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
    report = IngestionReport(added=1, failures={"a.txt": OSError("[bold]")}, seconds=0.25)
    assert printed(report) == (
        "1 added, 0 updated, 0 unchanged, 1 failed; 0 nodes in 0.2 s\n"
        "  a.txt: failed: OSError: [bold]\n"
    )


def test_a_notebook_shows_a_knowledge_base_as_a_table(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        kb.add([Document(text="25 days of leave", id_="leave")])
        cells = re.findall(r"<td[^>]*>(.*?)</td>", kb._repr_html_())
        assert dict(zip(cells[::2], cells[1::2], strict=True))["documents"] == "1"
        assert repr(kb).startswith(f"KnowledgeBase({url!r}, 1 documents, 1 nodes, ")
    assert "closed" in kb._repr_html_()
    assert repr(kb) == f"KnowledgeBase({url!r}, closed)"


def test_ten_long_hits_are_a_small_page() -> None:
    hits = [
        Hit(
            node=TextNode(
                text=f"{MARKUP} 年假 annual leave " * 400,
                metadata={f"{MARKUP}{n}": MARKUP * 9 for n in range(60)},
            ),
            score=1 / (rank + 1),
            path=MARKUP * 99,
            contributions=tuple(Contribution(MARKUP * n, 1, 0.1, 1, 0.1) for n in range(1, 9)),
        )
        for rank in range(10)
    ]
    trace = Trace("hybrid", duration_s=0.01, verbose=True)
    for _ in range(300):
        trace.begin(MARKUP * 20).end(result=hits, error=OSError(MARKUP * 20))
    trace.end(result=hits)
    degraded = tuple(Degradation("leg", MARKUP * 20) for _ in range(50))
    result = SearchResult(hits, degraded, trace, query="leave 年假")
    assert len(result._repr_html_().encode()) <= 100_000
    assert len(explanation_of(result)._repr_html_().encode()) <= 150_000


def test_matched_terms_are_marked_in_the_part_that_has_most_of_them() -> None:
    text = "前言部分。" * 100 + "员工每年享有二十五天年假。" + "其他规定。" * 100
    html = SearchResult([Hit(node=TextNode(text=text), score=1.0)], query="年假")._repr_html_()
    assert "<mark>年假</mark>" in html
    assert len(html) < 9000
