"""Runs the program as a shell would."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from llama_retrieval_ext.cli import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., "CompletedProcess[str]"]:
    def finished(*given: str | Path) -> CompletedProcess[str]:
        args = [str(arg) for arg in given]
        with pytest.raises(SystemExit) as exited:
            main(args)
        out, err = capsys.readouterr()
        assert isinstance(exited.value.code, int)
        return CompletedProcess(args, exited.value.code, out, err)

    return finished


@pytest.fixture
def handbook(tmp_path: Path) -> Path:
    folder = tmp_path / "handbook"
    folder.mkdir()
    for name, text in {
        "leave.md": "# Leave\n\nEvery employee has 25 days of annual leave.",
        "年假.txt": "员工每年享有二十五天年假。",
        "lunch.txt": "The canteen serves lunch at noon.",
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder
