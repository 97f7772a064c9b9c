"""The README keeps its word: its commands are marked for CI, and its programs run."""

import re
from pathlib import Path

import pytest

import llama_retrieval_ext
from llama_retrieval_ext import RRF, open_store
from llama_retrieval_ext.cli.quickstart import QUESTIONS, five_lines
from llama_retrieval_ext.stores.open import backend_for
from tests.ingest.engines import ENGINES, place, start
from tests.servers.elasticsearch import elasticsearch_url

__all__ = ["elasticsearch_url"]

TEXT = (Path(llama_retrieval_ext.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
# Those with prompts are doctests.
PROGRAMS = re.findall(r"^```python\n((?!>>>).*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["quickstart", "test"])
def test_command_is_one_line_under_its_mark(name: str) -> None:
    (command,) = re.findall(
        rf"^<!-- ci:{name} -->\n```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL
    )
    assert command.count("\n") == 1
    assert command.startswith("python3 -m venv .venv && .venv/bin/pip install -q ")


def test_first_program_is_the_one_the_quickstart_prints() -> None:
    assert PROGRAMS[0].rstrip() == five_lines(QUESTIONS[0])


def test_programs_run_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for program in PROGRAMS:
        exec(program, names)
    out = capsys.readouterr().out
    assert "except" in out
    assert out.splitlines()[-1].startswith("python/")


def test_links_to_files_lead_somewhere() -> None:
    root = Path(llama_retrieval_ext.__file__).parents[1]
    named = re.findall(r"`(llama_retrieval_ext/[\w/.]+)`", TEXT)
    assert named
    assert [name for name in named if not (root / name).exists()] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_the_tables_of_engines_say_what_the_backends_declare(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    start(engine, request)
    with place(engine, tmp_path, request) as url, open_store(url) as store:
        has = backend_for(store).features
    declared = {
        "vector and keyword search in one request": has.one_round_trip,
        "MMR in the engine (LlamaIndex's mode `MMR`)": has.mmr,
        "`RRF(k)`, `k` a whole number, equal weights": any(
            each.kind is RRF for each in has.fusions
        ),
    }
    told = {row: _told_of_engines(row)[engine].startswith("yes") for row in declared}
    assert told == declared


def _told_of_engines(row: str) -> dict[str, str]:
    """The cells of a row, by engine; one column may stand for the first two."""
    (line,) = re.findall(rf"^\| {re.escape(row)} \|(.*)\|$", TEXT, flags=re.MULTILINE)
    cells = [cell.strip() for cell in line.split("|")]
    return dict(
        zip(ENGINES, cells if len(cells) == len(ENGINES) else cells[:1] + cells, strict=True)
    )
