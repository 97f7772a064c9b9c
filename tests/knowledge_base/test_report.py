import json

from llama_retrieval_ext.knowledge_base.report import IngestionReport


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
