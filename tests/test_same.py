"""The page of what is the same on every engine says what running it shows."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from llama_retrieval_ext import KnowledgeBase
from llama_retrieval_ext.cli.app import app
from llama_retrieval_ext.serve import create_app, create_mcp_server
from llama_retrieval_ext.serve.requests import SearchRequest
from llama_retrieval_ext.stores import open as opening
from tests import same
from tests.knowledge_base.engines import place, start
from tests.servers.elasticsearch import elasticsearch_url

__all__ = ["elasticsearch_url"]

pytestmark = pytest.mark.slow
PAGE = (Path(opening.__file__).parent / "SAME.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowledgeBase]:
    with same.opened(f"embedded:{tmp_path_factory.mktemp('same') / 'kb'}") as kb:
        yield kb


def columns() -> list[list[str]]:
    """The cells of the first table of the page, its head first."""
    table = PAGE.split("| feature |", 1)[1].split("\n\n", 1)[0]
    lines = f"| feature |{table}".splitlines()
    return [line.strip("| ").split(" | ") for line in lines if "---" not in line]


@pytest.mark.parametrize("engine", columns()[0][2:])
def test_the_page_says_what_an_engine_answers(
    engine: str, embedded: KnowledgeBase, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    start(engine, request)
    with place(engine, tmp_path, request) as url, same.opened(url) as kb:
        found = same.table({"embedded": embedded, engine: kb}).splitlines()[2:]
    at = columns()[0].index(engine)
    shown = [f"| {row[0]} | {row[1]} | {row[at]} |" for row in columns()[1:]]
    assert found == shown


def test_answers_of_the_embedded_engine_say_something(embedded: KnowledgeBase) -> None:
    assert [name for name, answer in same.answers(embedded).items() if not answer] == []


def test_random_pipelines_agree(embedded: KnowledgeBase, tmp_path: Path) -> None:
    with same.opened(f"qdrant:{tmp_path / 'kb'}") as kb:
        assert same.disagreements({"embedded": embedded, "qdrant": kb}, 30, 0) == []


def test_the_page_says_what_each_entrance_offers(embedded: KnowledgeBase) -> None:
    assert same.entrances() in PAGE
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # a group
    options = {option for part in commands["search"].params for option in part.opts}
    tools = asyncio.run(create_mcp_server(embedded, scope=same.ACME).list_tools())
    arguments = {name for tool in tools for name in (tool.name, *tool.input_schema["properties"])}
    http = {*create_app(embedded).openapi()["paths"], *SearchRequest.model_fields}
    for python, route, tool, command in same.ENTRANCES:
        assert route in http or not route, python
        assert tool in arguments or not tool, python
        assert command in options or command in commands or not command, python
