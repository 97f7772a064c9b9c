import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from llama_retrieval_ext.graph.open import open_graph
from tests.knowledge_base.engines import EMBEDDED
from tests.servers.neo4j import neo4j_url

__all__ = ["neo4j_url"]

pytestmark = pytest.mark.slow


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork and no SIGKILL")
@pytest.mark.timeout(300)
def test_a_process_killed_while_adding_leaves_whole_documents(url: str, engine: str) -> None:
    kill(url, *(("5", "1", "0.05") if engine == "embedded" else ("2", "1", "0.4")))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork and no SIGKILL")
@EMBEDDED
def test_a_process_killed_while_adding_leaves_the_graph_in_step(url: str, fast_disk: Path) -> None:
    kill(url, "6", "2", "0.1", f"graph:{fast_disk / 'graph'}")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork and no SIGKILL")
@EMBEDDED
def test_a_process_killed_while_adding_leaves_the_graph_on_neo4j_in_step(
    url: str, neo4j_url: str
) -> None:
    with closing(open_graph(neo4j_url)) as graph:
        graph.clear(scope=None)
    kill(url, "2", "3", "0.6", neo4j_url)


def kill(*arguments: str) -> None:
    """Kill a process that adds, some times, and look at what is left each time."""
    program = Path(__file__).with_name("kills.py")
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{arguments[1]} rounds")
