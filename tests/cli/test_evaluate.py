"""`llama-retrieval eval`."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.slow


def test_files_are_named_in_a_csv(run: Run, read_url: str, tmp_path: Path) -> None:
    judged = tmp_path / "judged.csv"
    judged.write_text("question,file\nannual leave of an employee,leave.md\nlunch,lunch.txt\n")
    args = ("eval", judged, "--kb", read_url, "--measure", "RR", "--folder", tmp_path / "runs")
    shown = run(*args, "--mode", "keyword", "--mode", "hybrid", "--tune")
    assert shown.returncode == 0
    assert "1.0000*" in shown.stdout
    assert "2 questions (labels), judged by document" in shown.stdout
    assert "2 labelled questions carry no setting" in shown.stdout
    as_json = json.loads(run(*args, "--json").stdout)
    assert [row["retriever"] for row in as_json["results"]] == ["vector", "keyword", "hybrid"]
    assert as_json["results"][1]["RR"] == 1.0
    assert (tmp_path / "runs" / "answers.jsonl").read_text().count("\n") == 6


def test_without_questions_known_items_are_made_and_said_to_be_synthetic(
    run: Run, read_url: str
) -> None:
    shown = run("eval", "--kb", read_url)
    assert shown.returncode == 0
    assert "synthetic questions" in shown.stderr
    assert "(synthetic: known items)" in shown.stdout
    assert "Answering" not in shown.stderr  # which is no terminal
    wrong = run("eval", "--kb", read_url, "--measure", "nope")
    assert wrong.returncode == 1
    assert "measures are those of ir-measures" in wrong.stderr


def test_judged_documents_that_are_not_in_the_knowledge_base_are_named(
    run: Run, read_url: str, tmp_path: Path
) -> None:
    judged = tmp_path / "judged.csv"
    args = ("eval", judged, "--kb", read_url, "--measure", "RR", "--mode", "keyword")
    judged.write_text("question,file\nannual leave,leave.md\nfax number,nosuch.md\n")
    shown = run(*args)
    assert shown.returncode == 0
    told = " ".join(shown.stdout.split())
    assert "not in the knowledge base: 1 of 2 judged documents, which count as missed" in told
    assert "'nosuch.md'" in told
    judged.write_text("question,file\nannual leave,leave.md\nlunch,lunch.txt\n")
    assert "not in the knowledge base" not in run(*args).stdout


def test_a_gate_for_ci_has_exit_codes_and_a_report(run: Run, read_url: str, tmp_path: Path) -> None:
    judged = tmp_path / "judged.csv"
    judged.write_text("question,file\nannual leave of an employee,leave.md\nlunch,lunch.txt\n")
    args = ("eval", judged, "--kb", read_url, "--measure", "RR", "--mode", "keyword")
    runs, report = tmp_path / "runs", tmp_path / "gate.xml"
    assert run(*args, "--folder", runs).returncode == 0
    passed = run(*args, "--baseline", runs, "--fail-under", "RR=0.9", "--report", report)
    assert passed.returncode == 0
    assert "| keyword RR | passed | 1.0000 is at least 0.9 |" in passed.stdout
    assert 'failures="0"' in report.read_text()
    judged.write_text("question,file\nannual leave of an employee,lunch.txt\nlunch,lunch.txt\n")
    assert run(*args, "--fail-under", "RR=0.9").returncode == 1
    assert "is no MEASURE=NUMBER" in run(*args, "--fail-under", "RR").stderr
    assert "record one with --folder" in run(*args, "--baseline", tmp_path / "no").stderr
