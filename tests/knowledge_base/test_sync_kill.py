"""A folder that is edited at random while the processes that sync it are killed."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


# One engine in files, and one on a server.
@pytest.mark.parametrize("engine", ["embedded", "elasticsearch"], indirect=True)
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork and no SIGKILL")
@pytest.mark.timeout(300)
def test_a_folder_synced_by_processes_that_are_killed_is_as_in_a_new_build(
    url: str, engine: str, tmp_path: Path
) -> None:
    (tmp_path / "handbook").mkdir()
    edits = 36 if engine == "embedded" else 18
    graph = [f"graph:{tmp_path / 'graph'}"] if engine == "embedded" else []
    program = Path(__file__).with_name("sync_edits.py")
    done = subprocess.run(
        [
            sys.executable,
            str(program),
            url,
            str(tmp_path / "handbook"),
            *("40", str(edits), "6", "1"),
            *graph,
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{edits} edits of 40 files, ")
