"""Filters in words over HTTP, over MCP and on the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_index.core import Document
from starlette.testclient import TestClient

from llama_retrieval_ext.cli.app import main
from llama_retrieval_ext.embeddings.local import LocalEmbedding
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.serve import create_app, create_mcp_server
from tests.serve.test_mcp_server import connected, data

HINT = "filtered by year > 2010 ('after 2010')"


@pytest.fixture
def kb(tmp_path: Path) -> Iterator[KnowledgeBase]:
    model, schema = LocalEmbedding(), Schema(numbers=["year"])
    url = f"embedded:{tmp_path / 'kb'}"
    with KnowledgeBase.open(url, embed_model=model, schema=schema) as kb:
        for year in (2005, 2020):
            film = Document(text="A film about clones.", metadata={"year": year})
            kb.add([film], show_progress=False)
        yield kb


async def test_words_become_filters_at_every_entrance_that_says_so(
    kb: KnowledgeBase, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"query": "films after 2010 about clones", "interpret": True}
    with TestClient(create_app(kb), base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        found = client.post("/v1/search", json=asked).json()
    assert (found["hints"], len(found["hits"])) == ([HINT], 1)
    async with connected(create_mcp_server(kb)) as agent:
        found = data(await agent.call_tool("search", asked))
        as_asked = data(await agent.call_tool("search", {"query": asked["query"]}))
    assert (found["hints"], len(found["passages"])) == ([HINT], 1)
    assert (as_asked["hints"], len(as_asked["passages"])) == ([], 2)
    kb.close()
    with pytest.raises(SystemExit):
        main(["search", str(asked["query"]), "--interpret", "--kb", kb.url])
    assert HINT in " ".join(capsys.readouterr().err.split())
