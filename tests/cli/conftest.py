"""Runs the program as a shell would, and ingests a folder of three files."""

import json
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from llama_retrieval_ext.cli import main

Run = Callable[..., "CompletedProcess[str]"]
HANDBOOK = {
    "leave.md": "# Leave\n\nEvery employee has 25 days of annual leave.",
    "年假.txt": "员工每年享有二十五天年假。",
    "lunch.txt": "The canteen serves lunch at noon.",
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def finished(*arguments: str | Path) -> CompletedProcess[str]:
        args = [str(argument) for argument in arguments]
        with pytest.raises(SystemExit) as exited:
            main(args)
        out, err = capsys.readouterr()
        assert isinstance(exited.value.code, int)
        return CompletedProcess(args, exited.value.code, out, err)

    return finished


def written(folder: Path) -> Path:
    """A folder with the handbook."""
    folder.mkdir()
    for name, text in HANDBOOK.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def handbook(tmp_path: Path) -> Path:
    return written(tmp_path / "handbook")


@pytest.fixture
def url(tmp_path: Path, run: Run, handbook: Path) -> str:
    """A knowledge base with the handbook in it."""
    url = f"embedded:{tmp_path / 'kb'}"
    finished = run("ingest", handbook, "--kb", url)
    assert finished.returncode == 0, finished.stderr
    return url


@pytest.fixture(scope="session")
def read_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same for tests that only read."""
    folder = tmp_path_factory.mktemp("read")
    url = f"embedded:{folder / 'kb'}"
    with redirect_stdout(StringIO()), suppress(SystemExit):
        main(["ingest", str(written(folder / "handbook")), "--kb", url])
    return url


def best(run: Run, *args: str) -> list[str]:
    """The files of the hits of a search, best first."""
    finished = run("search", *args, "--json")
    assert finished.returncode == 0, finished.stderr
    return [hit["metadata"]["file_name"] for hit in json.loads(finished.stdout)["hits"]]
