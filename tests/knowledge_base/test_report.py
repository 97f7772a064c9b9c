import json
from collections.abc import Iterator

import pytest
from llama_index.core.schema import Document

from llama_retrieval_ext.knowledge_base import report
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.report import IngestionReport


def test_it_is_one_line_to_read_and_json_to_keep() -> None:
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


@pytest.mark.parametrize("total", ["3/3", "3doc"])
def test_the_progress_bar_counts_documents_with_and_without_an_end(
    kb: KnowledgeBase,
    total: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def documents() -> Iterator[Document]:
        for number in range(3):
            yield Document(id_=f"d{number}", text="leave")

    monkeypatch.setattr(report, "_DELAY_S", 0)
    kb.add(list(documents()) if total == "3/3" else documents())
    assert total in capsys.readouterr().err


def test_no_progress_bar_means_none(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "_DELAY_S", 0)
    kb.add([Document(text="leave")], show_progress=False)
    assert capsys.readouterr().err == ""
