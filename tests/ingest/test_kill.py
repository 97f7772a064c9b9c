import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork and no SIGKILL")
@pytest.mark.timeout(300)
def test_a_process_killed_while_it_adds_loses_nothing_and_leaves_nothing_half_done(
    url: str, engine: str
) -> None:
    program = Path(__file__).with_name("kills.py")
    done = subprocess.run(
        [sys.executable, str(program), url, "7", "1", "0.05" if engine == "embedded" else "0.5"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("7 rounds")
