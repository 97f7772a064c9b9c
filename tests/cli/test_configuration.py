"""`llama-retrieval schema`, `validate`, and `search --pipeline`."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from llama_retrieval_ext.config import pipeline_schema
from llama_retrieval_ext.config.registry import default_registry

Run = Callable[..., "CompletedProcess[str]"]
PIPELINE = """\
version: 1
pipeline:
  type: Pipeline
  source: {type: hybrid, dense_weight: 0.6}
  refines:
    - {type: RuleRerank}
    - {type: Top, k: 1}
"""


def test_the_schema_is_printed(run: Run) -> None:
    shown = run("schema")
    assert shown.returncode == 0
    assert json.loads(shown.stdout) == pipeline_schema(default_registry())


def test_a_file_is_valid_or_each_problem_is_a_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    assert run("validate", file).stdout == f"{file} is valid\n"
    file.write_text(PIPELINE.replace("dense_weight", "dense_wieght").replace("k: 1", "k: no"))
    bad = run("validate", file)
    assert bad.returncode == 1
    first, second = bad.stderr.splitlines()
    assert f"{file}, line 4, column 26, pipeline.source.dense_wieght: " in first
    assert first.endswith("did you mean 'dense_weight'?")
    assert f"{file}, line 7, column 22, pipeline.refines.1.k: " in second
    assert run("validate", tmp_path / "none.yaml").returncode == 1


def test_search_by_a_file(run: Run, handbook: Path, tmp_path: Path) -> None:
    file, kb = tmp_path / "p.yaml", f"embedded:{tmp_path / 'kb'}"
    file.write_text(PIPELINE)
    assert run("ingest", handbook, "--kb", kb).returncode == 0
    found = run("search", "annual leave", "--kb", kb, "--pipeline", file, "--json")
    (hit,) = json.loads(found.stdout)["hits"]
    assert "25 days" in hit["text"]
    collapsed = run("search", "leave", "--kb", kb, "--pipeline", file, "--per-document", "1")
    assert collapsed.returncode == 0
    both = run("search", "leave", "--kb", kb, "--pipeline", file, "--mode", "vector")
    assert both.returncode == 1
    assert "--mode and --pipeline" in both.stderr
    file.write_text(PIPELINE.replace("hybrid", "hyde"))
    without = run("search", "leave", "--kb", kb, "--pipeline", file)
    assert without.returncode == 1
    assert "pipeline.source" in without.stderr
