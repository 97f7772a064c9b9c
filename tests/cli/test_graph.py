"""Graphs and rules on the command line."""

import json
from pathlib import Path

import pytest

from llama_retrieval_ext import open_graph
from llama_retrieval_ext.graph.elements import Edge
from tests.cli.conftest import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"graph:{tmp_path / 'graph'}"
    graph = open_graph(url)
    own = {"tenant_id": "acme"}
    graph.upsert([], [Edge.of("pit", "HAS_HAZARD", "collapse", own)])
    graph.upsert([], [Edge.of("pit", "USES", "crane", {"tenant_id": "globex"})])
    graph.close()
    return url


def test_info_counts_labels_and_relations_of_a_scope(run: Run, url: str) -> None:
    assert "2 nodes" in run("graph", "info", url, "--tenant", "acme").stdout
    shown = json.loads(run("graph", "info", url, "--tenant", "acme", "--json").stdout)
    assert shown["relations"] == [
        {"from": "entity", "relation": "HAS_HAZARD", "to": "entity", "edges": 1}
    ]
    assert "MITIGATED_BY" in run("graph", "info", "sample").stdout


def test_path_joins_two_entities_by_name(run: Run, url: str) -> None:
    finished = run("graph", "path", "tower crane", "深基坑开挖")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines()[0].endswith("hops")
    assert "塔式起重机" in finished.stdout
    assert (
        "pit -HAS_HAZARD-> collapse"
        in run("graph", "path", "collapse", "pit", "--graph", url).stdout
    )
    hidden = run("graph", "path", "collapse", "pit", "--graph", url, "--tenant", "globex")
    assert (hidden.returncode, "'collapse'" in hidden.stderr) == (1, True)
    assert run("graph", "path", "noise", "脚手架搭设", "--max-hops", "1").returncode == 1


def test_a_graph_that_is_not_there_is_not_made(run: Run, tmp_path: Path) -> None:
    finished = run("graph", "info", f"graph:{tmp_path / 'none'}")
    assert finished.returncode == 1
    assert not (tmp_path / "none").exists()


def test_check_has_a_line_for_the_error_of_each_rule(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "rules:\n  - id: r\n    match:\n      - {nodee: p}\n    then: x\n  - {id: s, whatever: y}\n"
    )
    finished = run("rules", "check", file)
    assert finished.returncode == 1
    first, second = finished.stderr.splitlines()
    assert first.startswith(f"error: {file}, line 4")
    assert "node" in first
    assert second.startswith(f"error: {file}, line 6")
    file.write_text("rules: [{id: r, match: [{node: p}], then: x}]")
    assert "1 rule, no errors" in run("rules", "check", file).stdout


def test_run_shows_sentences_with_proofs(run: Run, tmp_path: Path, url: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "rules: [{id: r, match: [{node: p}, {follow: HAS_HAZARD, node: hazard}],"
        " where: [{context: chapter, value: safety}], then: 'beware of {hazard}'}]"
    )
    args = ("rules", "run", file, "--process", "pit", "--graph", url, "--tenant", "acme")
    finished = run(*args, "--context", "chapter=safety")
    assert "beware of collapse" in finished.stdout
    assert "pit -HAS_HAZARD-> collapse" in finished.stdout
    assert "no rule concludes" in run(*args).stdout
    assert run(*args, "--context", "chapter").returncode == 1
    sample = run("rules", "run", "sample", "--process", "爆破作业", "--json")
    assert json.loads(sample.stdout)["process"] == "爆破作业"
