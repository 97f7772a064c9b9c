"""What a REPL, a notebook and a rich console show of results, hits and traces."""

import re
from pathlib import Path

import pytest
from llama_index.core import Document
from llama_index.core.schema import TextNode

from llama_retrieval_ext import (
    MMR,
    RRF,
    Contribution,
    Hit,
    KnowledgeBase,
    Retriever,
    RuleRerank,
    SearchResult,
    Top,
    WeightedSum,
    branches,
)
from llama_retrieval_ext.hits import document_title
from llama_retrieval_ext.knowledge_base.report import CopyReport, IngestionReport
from llama_retrieval_ext.pipeline.explanation import explanation_of
from llama_retrieval_ext.results import ProofEdge
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FixedRetriever
from llama_retrieval_ext.trace import Degradation, Trace
from tests.cases import cases
from tests.display.conftest import MARKUP, full_result, printed


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


@cases(
    "value",
    [
        full_result(),
        full_result()[0],
        full_result().trace,
        IngestionReport(added=1, skipped={MARKUP: MARKUP}, failures={MARKUP: OSError(MARKUP)}),
        CopyReport(copied=1, failures={MARKUP: OSError(MARKUP)}),
    ],
)
def test_html_is_escaped_and_self_contained(value: object) -> None:
    html = value._repr_html_()  # type: ignore[attr-defined]
    assert "<script" not in html
    assert "<down>" not in html
    assert not re.search(r"\b(src|href|id|on\w+)=|@import|url\(", html)
    opened, closed = re.findall(r"<(\w+)", html), re.findall(r"</(\w+)", html)
    assert sorted(opened) == sorted([*closed, *["br"] * opened.count("br")][: len(opened)])


@pytest.mark.slow
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


_WORDS = FixedRetriever([("a", 9.0), ("b", 4.0)], name="words")
_MEANING = FixedRetriever([("a", 0.9), ("b", 0.8)], name="meaning")
_FUSED = branches(words=_WORDS, meaning=_MEANING) >> RRF()


def _cards(retriever: Retriever) -> list[tuple[list[str], list[str]]]:
    """The visible and the folded chips of each card, as text."""
    html = retriever.explain("leave")._repr_html_()
    cards = html.partition("<summary>Steps")[0].split('class="card"')[1:]
    split = [card.partition("<details>") for card in cards]
    return [
        ([_text(chip) for chip in _chips(shown)], [_text(chip) for chip in _chips(folded)])
        for shown, _, folded in split
    ]


def _chips(html: str) -> list[str]:
    return re.findall(r'class="chip">(?:<i[^>]*></i>)?([^<]*)', html)


def _text(chip: str) -> str:
    return chip.partition(",")[0]


@cases(
    ("retriever", "reordering"),
    [
        (_FUSED >> MMR(0.5, embed_model=FakeEmbedding()), ["MMR"]),
        (_FUSED >> RuleRerank(), ["previous rank"]),
        (
            _FUSED >> RuleRerank() >> MMR(0.5, embed_model=FakeEmbedding()) >> Top(2),
            ["previous rank", "MMR"],
        ),
    ],
)
def test_a_card_shows_the_legs_first_and_the_stages_that_reorder_after_them(
    retriever: Retriever, reordering: list[str]
) -> None:
    cards = _cards(retriever)
    assert len(cards) == 2
    for (shown, folded), rank in zip(cards, (1, 2), strict=True):
        assert shown[0].startswith(f"words #{rank} (")
        assert shown[1].startswith(f"meaning #{rank} (")
        names = [chip.partition(" #")[0] for chip in shown[2 : 2 + len(reordering)]]
        assert names == reordering
        assert all(chip.endswith("(0)") for chip in folded)


def test_a_leg_with_the_lowest_score_of_the_fusion_is_shown() -> None:
    fused = branches(words=_WORDS, meaning=_MEANING) >> WeightedSum()
    (_, _), (shown, folded) = _cards(fused)
    assert [chip.partition(" (")[0] for chip in shown] == ["words #2", "meaning #2"]
    assert not folded


def test_the_weight_is_the_one_that_was_multiplied() -> None:
    fused = branches(words=_WORDS, meaning=_MEANING) >> WeightedSum()
    line = next(line for line in str(fused.explain("leave")).splitlines() if "words #1" in line)
    multiplied = re.search(r"normalised 1, weight ([\d.]+), adds ([\d.]+)", line)
    assert multiplied is not None
    assert multiplied[1] == multiplied[2]
