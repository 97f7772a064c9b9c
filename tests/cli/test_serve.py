"""`llama-retrieval serve` and `mcp`: what they start, and what they refuse."""

import sys
from typing import Any

import pytest

from llama_retrieval_ext import serve
from llama_retrieval_ext.cli import main
from tests.serve.conftest import Connect, connect, gate, kb
from tests.serve.test_service_routes import WRITTEN, post
from tests.servers.openai import Failure, FakeOpenAI

__all__ = ["connect", "gate", "kb"]

pytestmark = pytest.mark.slow

SERVE = ["serve", "--kb", "embedded::memory:", "--create"]
LLM = ["--llm-url", "http://127.0.0.1:1/v1", "--llm-model", "m"]


@pytest.mark.parametrize("kb_url", ["embedded:./kb", "embedded::memory:", "qdrant:./kb"])
def test_several_workers_of_a_store_with_one_process_are_refused(
    capsys: pytest.CaptureFixture[str], kb_url: str
) -> None:
    with pytest.raises(SystemExit, match="1"):
        main(["serve", "--kb", kb_url, "--workers", "2"])
    assert f"{kb_url} is written by one process; add --read-only" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--llm-url", "http://127.0.0.1:1/v1"], "both --llm-url URL and --llm-model NAME"),
        (["--llm-key-env", "NO_SUCH"], "both --llm-url URL and --llm-model NAME"),
        ([*LLM, "--llm-key-env", "NO_SUCH"], "the variable 'NO_SUCH', which is unset"),
        ([*LLM, "--missing"], "pip install 'llama-index-llms-openai-like"),
    ],
)
def test_an_llm_that_the_command_line_cannot_use_is_an_error(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    message: str,
) -> None:
    if "--missing" in options:
        options = options[:-1]
        monkeypatch.setitem(sys.modules, "llama_index.llms.openai_like", None)
    with pytest.raises(SystemExit, match="1"):
        main([*SERVE, *options])
    assert message in " ".join(capsys.readouterr().err.split())


def test_an_llm_of_the_command_line_answers(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Any] = []
    monkeypatch.setenv("LLM_KEY", "sk-of-the-server")
    monkeypatch.setattr(serve, "serve_http", lambda _, *, llm, **__: served.append(llm))
    with FakeOpenAI(["It is 25 days [1].", Failure(401)]) as server:
        options = ["--llm-url", server.url, "--llm-model", "m", "--llm-key-env", "LLM_KEY"]
        with pytest.raises(SystemExit, match="0"):
            main([*SERVE, *options])
        (llm,) = served
        client = connect(llm=llm)
        answer = post(client, "ask", WRITTEN["ask"])
        assert answer.json()["answer"] == "It is 25 days [1]."
        assert "acme" in answer.json()["citations"][0]["text"]
        assert not any("globex" in prompt for prompt in server.prompts)
        assert post(client, "ask", WRITTEN["ask"]).status_code == 502
