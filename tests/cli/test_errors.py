"""Errors speak of options, not of Python's arguments or of pydantic."""

import re
from pathlib import Path

import pytest
import typer

from llama_retrieval_ext.cli.app import app
from llama_retrieval_ext.cli.errors import in_options
from llama_retrieval_ext.errors import ConfigurationError, StoreUnavailableError
from llama_retrieval_ext.knowledge_base.graph import open_recorded
from llama_retrieval_ext.stores.embedded.files import check_room
from tests.cases import cases
from tests.cli.conftest import Run


def _context(command: str) -> typer.Context:
    ctx = typer.Context(typer.main.get_command(app))
    ctx.invoked_subcommand = command
    return ctx


@pytest.mark.slow
@cases(
    ("command", "message", "spoken"),
    [
        (
            "sync",
            "pass max_deletions=1; to keep all, prune=False",
            "pass --max-deletions 1; to keep all, --no-prune",
        ),
        ("search", "open it with graph='graph:./g'", "open it with ingest --graph graph:./g"),
        ("search", "make one, or registry.bind(kb, graph=...)", "make one"),
        ("search", "pass scope=Scope(...)", "pass --tenant or --kb-id"),
        (
            "ingest",
            "open it with store_params={'min_free_bytes': ...} below 9",
            "open it with --store-param min_free_bytes=... below 9",
        ),
        (
            "search",
            "create it: KnowledgeBase.open('embedded:./my (old) kb, 2')",
            "create it: llama-retrieval ingest PATH --kb 'embedded:./my (old) kb, 2'",
        ),
        (
            "serve",
            "create it: KnowledgeBase.open('embedded:./x')",
            "create it: llama-retrieval ingest PATH --kb embedded:./x, or empty with --create",
        ),
        (
            "list",
            "copy_knowledge_base('qdrant:./kb', new_url, embed_model=...)",
            "llama-retrieval copy --from qdrant:./kb --to URL --embed-model MODEL",
        ),
        (
            "search",
            "no document 'top_k', no name=x, a mode or graph",
            "no document 'top_k', no name=x, a mode or graph",
        ),
    ],
)
def test_arguments_are_written_as_options(command: str, message: str, spoken: str) -> None:
    assert in_options(ConfigurationError(message), _context(command)) == spoken


def test_a_full_disk_is_answered_with_the_command_that_still_reads(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError) as raised:
        check_room(tmp_path, size=2**60, min_free=1)
    spoken = in_options(raised.value, _context("ingest"))
    assert "or open it with --store-param min_free_bytes=... below 1" in spoken
    assert "opened with search --read-only, it is read from a copy" in spoken


@pytest.mark.slow
def test_a_setting_of_the_engine_is_an_option(run: Run, handbook: Path, tmp_path: Path) -> None:
    ingest = ("ingest", handbook, "--kb", f"embedded:{tmp_path / 'kb'}", "--store-param")
    refused = run(*ingest, f"min_free_bytes={2**60}")
    assert refused.returncode == 1
    assert "--store-param min_free_bytes=... below" in refused.stdout + refused.stderr
    assert "write KEY=VALUE" in run(*ingest, "index").stderr
    assert run(*ingest, "index=hnsw").returncode == 0


def test_a_graph_that_was_passed_as_an_object_is_named_without_a_command() -> None:
    with pytest.raises(ConfigurationError) as raised:
        open_recorded("a graph on neo4j, given as an object", "embedded:./kb")
    spoken = in_options(raised.value, _context("remove"))
    assert spoken == str(raised.value)
    assert "only a program with that object can open" in spoken


@pytest.mark.slow
def test_each_problem_of_a_file_is_a_line_with_its_own_names(
    run: Run, url: str, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("version: 1\npipeline: {type: keyword, top_k: 0, nam: x}\n")
    finished = run("search", "leave", "--kb", url, "--pipeline", file)
    lines = finished.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"error: {file}, line 2") for line in lines)
    assert "top_k" in finished.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["search", "x", "--mode", "hybird"], "did you mean 'hybrid'?"),
        (["eval", "--mode", "hybird"], "did you mean 'hybrid'?"),
        (["search", "x", "--top-k", "0"], "it should be greater than or equal to 1"),
    ],
)
def test_a_wrong_value_is_answered_in_plain_words(
    run: Run, arguments: list[str], part: str
) -> None:
    finished = run(*arguments)
    assert finished.returncode == 2
    shown = " ".join(finished.stderr.split())
    assert part in shown
    assert not re.search("Value error|Input should", shown)
