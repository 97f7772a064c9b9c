"""Wrong pipelines are type errors, on exactly the wrong lines; right ones are not."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
TYPED = Path(__file__).parent / "typing"
ROOT = TYPED.parent.parent
FILES = sorted(TYPED.glob("*.py"))
EXPECTED = {
    (path.name, number)
    for path in FILES
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    if line.endswith("# wrong")
}


def output_of(*command: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-m", *command, *map(str, FILES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode in {0, 1}, finished.stdout + finished.stderr
    return finished.stdout


def test_there_are_wrong_pipelines_to_check() -> None:
    assert {name for name, _ in EXPECTED} == {"wrong.py"}
    assert len(EXPECTED) > 40


def test_mypy_finds_the_wrong_lines_and_no_others() -> None:
    found = output_of("mypy", "--no-error-summary", "--hide-error-context")
    errors = re.findall(r"(\w+\.py):(\d+): error:", found)
    assert {(name, int(number)) for name, number in errors} == EXPECTED, found


@pytest.mark.skipif(
    importlib.util.find_spec("pyright") is None, reason="pyright comes with the extra dev"
)
def test_pyright_finds_the_wrong_lines_and_no_others() -> None:
    # The interpreter, because pyright looks for packages in the one it finds on the path.
    found = output_of("pyright", "--outputjson", "--pythonpath", sys.executable)
    errors = [
        item for item in json.loads(found)["generalDiagnostics"] if item["severity"] == "error"
    ]
    lines = {
        (Path(error["file"]).name, error["range"]["start"]["line"] + 1): error["message"]
        for error in errors
    }
    assert lines.keys() == EXPECTED, lines
