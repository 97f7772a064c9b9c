"""Reports about documents: a summary, and a line for each document that failed."""

import json

from llama_retrieval_ext.knowledge_base.report import IngestionReport, SyncReport
from tests.display.conftest import MARKUP, printed


def test_a_console_prints_each_failed_document_without_obeying_its_text() -> None:
    report = IngestionReport(added=1, failures={"a.txt": OSError("[bold]")}, seconds=0.25)
    assert printed(report) == (
        "1 added, 0 updated, 0 unchanged, 1 failed; 0 nodes in 0.2 s\n"
        "  a.txt: failed: OSError: [bold]\n"
    )


def test_html_names_each_document_with_its_reason() -> None:
    report = IngestionReport(added=2, skipped={"b.bin": "no text"}, failures={MARKUP: OSError("x")})
    html = report._repr_html_()
    assert "b.bin" in html
    assert "no text" in html
    assert "OSError: x" in html
    assert "<script" not in html


def test_html_of_a_sync_counts_its_sources_and_names_those_left_out() -> None:
    report = SyncReport(
        added=("a.md", "b.md"), moved={"c.md": "d.md"}, left_out={MARKUP: "no text"}
    )
    html = report._repr_html_()
    assert "left out: no text" in html
    assert "2 added, 0 changed, 1 moved" in html
    assert "<script" not in html


def test_a_report_prints_one_line_and_gives_json() -> None:
    report = IngestionReport(
        added=1, failures={"d": ValueError("no")}, skipped={"e": "no text"}, n_nodes=3, seconds=1.25
    )
    assert str(report) == "1 added, 0 updated, 0 unchanged, 1 skipped, 1 failed; 3 nodes in 1.2 s"
    assert json.loads(json.dumps(report.to_dict())) == {
        "added": 1,
        "updated": 0,
        "unchanged": 0,
        "skipped": {"e": "no text"},
        "failures": {"d": "ValueError: no"},
        "n_nodes": 3,
        "seconds": 1.25,
    }
