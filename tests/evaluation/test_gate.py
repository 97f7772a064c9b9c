"""Tests of `gate`."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import BM25Retriever
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation import Experiment, Judgements, Level, gate

NUMBERS = range(12)
WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "imp", "jay", "koi", "lynx"]
QUERIES = {f"q{n}": word for n, word in enumerate(WORDS)}


def run_of(
    folder: Path | None, *, cut: str = "", lost: int = 0, level: Level = Level.NODE
) -> Experiment:
    """Run keyword search over a document for each question, the first ``lost`` ones without it."""
    texts = {n: "nothing" if n < lost else WORDS[n] for n in NUMBERS}
    nodes = [TextNode(id_=f"{cut}n{n}", text=text) for n, text in texts.items()]
    for n, node in enumerate(nodes):
        node.metadata["file_name"] = f"file{n}.md"
    name = {Level.NODE: "n{}", Level.DOCUMENT: "file{}.md"}[level]
    judged = Judgements(QUERIES, {f"q{n}": {name.format(n): 1} for n in NUMBERS}, level)
    retrievers = {"keyword": BM25Retriever(nodes)}
    return Experiment(retrievers, judged, measures=["RR"], folder=folder).run(progress=False)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    run_of(tmp_path / "nodes")
    run_of(tmp_path / "documents", level=Level.DOCUMENT)
    return tmp_path


@pytest.mark.slow
def test_the_same_run_passes_and_a_worse_one_fails(recorded: Path) -> None:
    same = gate(run_of(None), baseline=recorded / "nodes")
    assert (same.exit_code, same.checks[0].failed) == (0, False)
    worse = gate(run_of(None, lost=8), baseline=recorded / "nodes" / "answers.jsonl")
    assert worse.exit_code == 1
    assert "0.3333, recorded 1.0000: -0.6667" in worse.checks[0].why


@pytest.mark.slow
def test_a_number_is_the_least_value_or_the_largest_loss(recorded: Path) -> None:
    now, baseline = run_of(None, lost=3), recorded / "nodes"
    assert gate(now, fail_under={"RR": 0.75}).exit_code == 0
    assert gate(now, fail_under={"RR": 0.76}).exit_code == 1
    assert gate(now, baseline=baseline, fail_under={"RR": -0.25}).exit_code == 0
    assert gate(now, baseline=baseline, fail_under={"RR": -0.24}).exit_code == 1
    both = gate(now, baseline=baseline, fail_under={"RR": 0.5})
    assert [check.name for check in both.checks] == ["keyword RR", "keyword RR as recorded"]
    assert [check.failed for check in both.checks] == [False, False]  # 3 of 12 are by chance
    with pytest.raises(ConfigurationError, match="name the baseline"):
        gate(now, fail_under={"RR": -0.1})
    with pytest.raises(ConfigurationError, match="the measures are RR"):
        gate(now, fail_under={"AP": 0.1})


@pytest.mark.slow
def test_documents_cut_anew_are_no_loss_of_quality(recorded: Path) -> None:
    nodes = gate(run_of(None, cut="new-"), baseline=recorded / "nodes")
    assert nodes.exit_code == 3
    assert "documents were cut anew: 100%" in nodes.notes[-1]
    assert "judge documents or texts" in nodes.checks[0].why
    documents = run_of(None, cut="new-", level=Level.DOCUMENT)
    compared = gate(documents, baseline=recorded / "documents")
    assert compared.exit_code == 0
    assert "documents were cut anew: 100%" in compared.notes[-1]


@pytest.mark.slow
def test_reports_are_junit_and_markdown(recorded: Path) -> None:
    failed = gate(run_of(None, lost=8), baseline=recorded / "nodes")
    suite = ET.fromstring(failed.to_junit())
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert suite[0][0].tag == "failure"
    assert "| keyword RR | failed | 0.3333, recorded" in failed.to_markdown()


@pytest.mark.slow
def test_what_the_recorded_run_did_not_answer_is_noted(recorded: Path) -> None:
    file = recorded / "nodes" / "answers.jsonl"
    file.write_text("".join(file.read_text("utf-8").splitlines(keepends=True)[:7]), "utf-8")
    note = "the recorded run has answers of keyword to 7 of 12 questions"
    assert gate(run_of(None), baseline=file).notes == (note,)


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="record one with --folder"):
        gate(run_of(None), baseline=tmp_path / "nosuch")
