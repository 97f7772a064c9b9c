"""The server on each engine: documents in, answers out, tenants apart."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.serve import ApiKeys, create_app
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.knowledge_base.conftest import engine
from tests.knowledge_base.engines import place
from tests.serve.conftest import KEYS, bearer, texts
from tests.servers.elasticsearch import elasticsearch_url

__all__ = ["elasticsearch_url", "engine"]


@pytest.fixture
def kb(engine: str, fast_disk: Path, request: pytest.FixtureRequest) -> Iterator[KnowledgeBase]:
    with (
        place(engine, fast_disk, request) as url,
        KnowledgeBase.open(url, embed_model=FakeEmbedding(), require_scope=True) as opened,
    ):
        yield opened


def test_documents_are_served_to_their_tenant_alone(kb: KnowledgeBase) -> None:
    with TestClient(create_app(kb, keys=ApiKeys.parse(KEYS))) as client:
        assert client.get("/ready").status_code == 200
        for tenant in ("acme", "globex"):
            note = {"id": "leave", "text": f"Annual leave at {tenant}.", "metadata": {"year": 2025}}
            added = client.post("/v1/documents", json={"documents": [note]}, headers=bearer(tenant))
            assert added.json()["added"] == 1
        filters = {"filters": [{"key": "year", "operator": ">=", "value": 2025}]}
        for tenant in ("acme", "globex"):
            client.headers.update(bearer(tenant))
            for mode in ("hybrid", "vector", "keyword"):
                body = {"query": "annual leave", "mode": mode, "filters": filters}
                answer = client.post("/v1/search", json=body)
                assert texts(answer) == [f"Annual leave at {tenant}."]
        assert client.delete("/v1/documents/leave").json() == {"deleted": 1}
        assert client.get("/v1/documents").json()["total"] == 0
        acme = client.get("/v1/documents/leave", headers=bearer("acme")).json()
        assert acme["passages"][0]["text"] == "Annual leave at acme."
