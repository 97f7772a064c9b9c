"""`ask`: an answer of a language model with the documents that it cites."""

import pytest

from tests.cli.conftest import Run
from tests.servers.openai import FakeOpenAI

pytestmark = pytest.mark.slow


def test_ask_prints_the_answer_with_the_documents_that_it_cites(run: Run, read_url: str) -> None:
    with FakeOpenAI(["You have 25 days of annual leave [1]."]) as server:
        options = ("--kb", read_url, "--llm-url", server.url, "--llm-model", "any")
        finished = run("ask", "How", "many", "days", "of", "annual", "leave?", *options)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == ["You have 25 days of annual leave [1].", "[1] leave.md"]


def test_ask_without_a_model_names_the_options(run: Run, read_url: str) -> None:
    finished = run("ask", "How many?", "--kb", read_url)
    assert finished.returncode == 1
    assert "--llm-url URL --llm-model NAME" in finished.stderr
