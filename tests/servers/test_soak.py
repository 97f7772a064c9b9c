"""A short soak: what `tests/benchmarks/soak.py` does for longer, on all its engines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick import trials
from tests.servers.elasticsearch import URL_VARIABLE, elasticsearch_url

__all__ = ["elasticsearch_url"]

ROOT = Path(__file__).parents[2]
SECONDS = trials(4)


@pytest.mark.slow
def test_nothing_is_lost_crossed_or_leaked_under_mixed_load(elasticsearch_url: str) -> None:
    pytest.importorskip("milvus_lite")
    pytest.importorskip("elasticsearch")
    finished = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.soak", str(SECONDS)],
        cwd=ROOT,
        env={**os.environ, URL_VARIABLE: elasticsearch_url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr[-2000:]
    assert "0 faults" in finished.stdout
