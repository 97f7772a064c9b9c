"""What all commands have in common: help, version, errors."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from llama_retrieval_ext import ConfigurationError, __version__
from llama_retrieval_ext.cli import main
from tests.cases import cases
from tests.cli.conftest import Run

pytestmark = pytest.mark.slow


def test_version(run: Run) -> None:
    finished = run("--version")
    assert (finished.returncode, finished.stdout) == (0, f"llama-retrieval {__version__}\n")


def test_without_a_command_the_commands_are_listed(run: Run) -> None:
    finished = run()
    shown = finished.stdout + finished.stderr
    assert all(command in shown for command in ("quickstart", "ingest", "search"))
    assert "..." not in shown.partition("Commands:")[2], "a summary is cut"


def test_help_is_plain_text_with_the_grammar_of_filters(run: Run) -> None:
    finished = run("search", "--help")
    assert finished.returncode == 0
    assert "Usage:" in finished.stdout
    assert finished.stdout.isascii()
    shown = " ".join(finished.stdout.split())
    assert all(each in shown for each in ("key=value", "key<=value", "key~part", "in (", "or"))


def test_error_is_one_line_and_exit_code_1(run: Run) -> None:
    finished = run("search", "leave", "--kb", "embeded:./kb")
    assert (finished.returncode, finished.stdout) == (1, "")
    assert finished.stderr.startswith("error: ")
    assert finished.stderr.count("\n") == 1
    assert "embedded" in finished.stderr


@cases("place", [0, 4])
def test_debug_shows_the_traceback_wherever_it_stands(place: int) -> None:
    args = ["search", "leave", "--kb", "embeded:./kb"]
    args.insert(place, "--debug")
    with pytest.raises(ConfigurationError):
        main(args)


def test_wrong_usage_is_exit_code_2(run: Run) -> None:
    finished = run("search")
    assert finished.returncode == 2
    assert "QUERY" in finished.stderr


@pytest.mark.parametrize("command", ["sync", "ingest", "quickstart"])
def test_an_empty_path_is_not_the_working_directory(run: Run, command: str) -> None:
    refused = run(command, "")
    assert refused.returncode == 2
    assert "the path is empty; write . for the working directory" in refused.stderr


def test_help_of_no_command_imports_llama_index_or_numpy() -> None:
    program = """
import sys
from llama_retrieval_ext.cli import main
for command in ([], ["search"], ["graph"], ["graph", "path"], ["rules"], ["rules", "run"]):
    try: main([*command, "--help"])
    except SystemExit: pass
print(sorted({"llama_index", "numpy"} & {*sys.modules}))
"""
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert finished.stdout.splitlines()[-1] == "[]"
    assert finished.stdout.isascii()


def test_program_is_installed() -> None:
    (found,) = entry_points(group="console_scripts", name="llama-retrieval")
    assert found.load() is main


def test_module_runs_the_program() -> None:
    command = [sys.executable, "-m", "llama_retrieval_ext", "--version"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert finished.stdout == f"llama-retrieval {__version__}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_a_plain_path_is_answered_with_the_url(run: Run, handbook: Path) -> None:
    for arguments in (["ingest", handbook, "--kb"], ["search", "x", "--kb"], ["remove"]):
        finished = run(*arguments, "./docs")
        assert finished.returncode == 1
        assert "did you mean embedded:./docs?" in finished.stderr


@pytest.mark.usefixtures("folder")
def test_the_knowledge_base_of_the_folder_is_the_default(run: Run, handbook: Path) -> None:
    assert run("ingest", handbook).returncode == 0
    assert Path("kb").is_dir()
    assert "leave.md" in run("search", "annual", "leave").stdout


@pytest.mark.usefixtures("folder")
def test_a_variable_names_the_knowledge_base(
    run: Run, handbook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_RETRIEVAL_KB", "embedded:./other")
    assert run("ingest", handbook).returncode == 0
    assert Path("other").is_dir()
    assert run("remove", "--kb", "embedded:./other", "--yes").returncode == 0
