"""Filters in words over HTTP, over MCP and on the command line; feedback to the query log."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_index.core import Document
from starlette.testclient import TestClient

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding, Schema, Scope
from llama_retrieval_ext.cli import main
from llama_retrieval_ext.evaluation import QueryLog
from llama_retrieval_ext.serve import ApiKeys, create_app, create_mcp_server
from tests.serve.test_mcp_server import connected, data

pytestmark = pytest.mark.slow

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


def test_click_is_logged_for_a_query_that_the_scope_of_the_key_sees(kb: KnowledgeBase) -> None:
    keys = [f"{{name: {name}, key: {name}-{'0' * 20}, tenant_id: {name}}}" for name in ("a", "b")]
    headers = [{"Authorization": f"Bearer {name}-{'0' * 20}"} for name in ("a", "b")]
    kb.add([Document(id_="leave", text="Annual leave.")], scope=Scope("a"), show_progress=False)
    log = kb.log = QueryLog(":memory:")
    app = create_app(kb, keys=ApiKeys.parse(f"keys: [{', '.join(keys)}]"))
    with TestClient(app) as client:
        answer = client.post("/v1/search", json={"query": "leave"}, headers=headers[0]).json()
        click = {"query_id": answer["query_id"], "hit": "leave", "good": True}
        statuses = [
            client.post("/v1/feedback", json=click, headers=of).status_code
            for of in (headers[1], {}, headers[0])
        ]
        assert client.post("/v1/feedback", json={"query_id": "x"}, headers=headers[0]).is_error
        shown = client.post("/v1/explain?view=html", json={"query": "leave"}, headers=headers[0])
        assert shown.headers["X-Query-Id"]
        kb.log = None
        assert client.post("/v1/feedback", json=click, headers=headers[0]).status_code == 501
    assert statuses == [422, 401, 204]
    query = log.queries()[0]
    assert ([*query.clicks], query.good) == ([1], True)
