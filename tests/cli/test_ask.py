"""`ask`: an answer of a language model with the documents that it cites."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.servers.openai import FakeOpenAI

Run = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def url(tmp_path: Path, run: Run, handbook: Path) -> str:
    url = f"embedded:{tmp_path / 'kb'}"
    assert run("ingest", handbook, "--kb", url).returncode == 0
    return url


def test_ask_prints_the_answer_with_the_documents_that_it_cites(run: Run, url: str) -> None:
    with FakeOpenAI(["You have 25 days of annual leave [1]."]) as server:
        options = ("--kb", url, "--llm-url", server.url, "--llm-model", "any")
        finished = run("ask", "How", "many", "days", "of", "annual", "leave?", *options)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == ["You have 25 days of annual leave [1].", "[1] leave.md"]


def test_ask_without_a_model_names_the_options(run: Run, url: str) -> None:
    finished = run("ask", "How many?", "--kb", url)
    assert finished.returncode == 1
    assert "--llm-url URL --llm-model NAME" in finished.stderr
