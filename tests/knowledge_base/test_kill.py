"""Processes that add or sync and are killed: what they leave is whole, or as in a new build."""

import sys
from contextlib import closing
from pathlib import Path

import pytest

from llama_retrieval_ext.graph.open import open_graph
from tests.knowledge_base.engines import EMBEDDED
from tests.programs import run_program
from tests.quick import trials
from tests.servers.neo4j import neo4j_url

__all__ = ["neo4j_url"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork and no SIGKILL"),
]


@pytest.mark.timeout(300)
def test_a_process_killed_while_adding_leaves_whole_documents(url: str, engine: str) -> None:
    kill(url, 3 if engine == "embedded" else 2, "1", "0.05" if engine == "embedded" else "0.4")


@EMBEDDED
def test_a_process_killed_while_adding_leaves_the_graph_in_step(url: str, tmp_path: Path) -> None:
    kill(url, 3, "2", "0.1", f"graph:{tmp_path / 'graph'}")


@EMBEDDED
def test_a_process_killed_while_adding_leaves_the_graph_on_neo4j_in_step(
    url: str, neo4j_url: str
) -> None:
    with closing(open_graph(neo4j_url)) as graph:
        graph.clear(scope=None)
    kill(url, 2, "3", "0.6", neo4j_url)


# One engine in files, and one on a server.
@pytest.mark.parametrize("engine", ["embedded", "elasticsearch"], indirect=True)
@pytest.mark.timeout(300)
def test_a_folder_synced_by_processes_that_are_killed_is_as_in_a_new_build(
    url: str, engine: str, tmp_path: Path
) -> None:
    edits = trials(12 if engine == "embedded" else 6)
    graph = [f"graph:{tmp_path / 'graph'}"] if engine == "embedded" else []
    (tmp_path / "handbook").mkdir()
    arguments = [url, str(tmp_path / "handbook"), "40", str(edits), "6", "1", *graph]
    assert run("sync_edits.py", *arguments).startswith(f"{edits} edits of 40 files, ")


def kill(url: str, rounds: int, *arguments: str) -> None:
    """Kill a process that adds, some times, and look at what is left each time."""
    times = str(trials(rounds))
    assert run("kills.py", url, times, *arguments).startswith(f"{times} rounds")


def run(program: str, *arguments: str) -> str:
    """Return the output of a program of this folder."""
    file = str(Path(__file__).with_name(program))
    code = f"import runpy; runpy.run_path({file!r}, run_name='__main__')"
    done = run_program(code, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout
