"""HTML: escaped, self-contained, small, with the matched terms marked."""

import re

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import Contribution, Hit, SearchResult
from llama_retrieval_ext.knowledge_base.report import CopyReport, IngestionReport
from llama_retrieval_ext.pipeline.explanation import explanation_of
from llama_retrieval_ext.trace import Degradation, Trace
from tests.display.conftest import MARKUP, full_result


@pytest.mark.parametrize(
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
