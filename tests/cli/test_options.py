"""Options that all commands share: where the knowledge base is."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_plain_path_is_answered_with_the_url(run: Run, handbook: Path) -> None:
    for arguments in (["ingest", handbook, "--kb"], ["search", "x", "--kb"], ["remove"]):
        finished = run(*arguments, "./docs")
        assert finished.returncode == 1
        assert "did you mean embedded:./docs?" in finished.stderr


def test_the_knowledge_base_of_the_folder_is_the_default(run: Run, handbook: Path) -> None:
    assert run("ingest", handbook).returncode == 0
    assert Path("kb").is_dir()
    assert "leave.md" in run("search", "annual", "leave").stdout


def test_a_variable_names_the_knowledge_base(
    run: Run, handbook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_RETRIEVAL_KB", "embedded:./other")
    assert run("ingest", handbook).returncode == 0
    assert Path("other").is_dir()
    assert run("remove", "--kb", "embedded:./other", "--yes").returncode == 0
