"""A few hits of each document are the same on every engine."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import NodeRelationship, QueryBundle, RelatedNodeInfo, TextNode

from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.store_retriever import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stages.selection import Collapse
from tests.servers.elasticsearch import elasticsearch_url
from tests.servers.milvus import milvus_url
from tests.stores.engines import filled

__all__ = ["elasticsearch_url", "milvus_url"]

N_NODES = 300
WORDS = ["leave", "travel", "budget", "contract", "年假", "报销"]
EXACT = {"number_of_replicas": 0, "index_options": {"type": "flat"}}
COLLAPSES = [Collapse(), Collapse(3), Collapse(by="author"), Collapse(2, by="author")]


@pytest.fixture
def qdrant_url() -> Iterator[str]:
    pytest.importorskip("qdrant_client")
    from tests.stores.qdrant.fake_server import FakeServer, serving  # noqa: PLC0415 - only then

    with serving(FakeServer()) as fake:
        yield f"qdrant://{fake.host}"


def random_nodes() -> list[TextNode]:
    """Some have no document, some documents are ids of nodes; one has a third of all nodes."""
    random.seed(7)
    nodes = []
    for place in range(N_NODES):
        node = TextNode(
            id_=f"n{place:03}",
            text=" ".join(random.choices(WORDS, k=random.randint(1, 9))),
            metadata={"tenant_id": random.choice("ab"), "author": random.choice(["Li", 7, None])},
            embedding=[random.gauss(0, 1) for _ in range(8)],
        )
        document = random.choice(["big", "n001", None, f"d{place % 30}", f"d{place % 30}"])
        if document is not None:
            node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
        nodes.append(node)
    return nodes


@pytest.mark.parametrize(
    ("engine", "settings"),
    [
        ("embedded", {}),
        ("qdrant", {}),
        ("qdrant server", {}),
        ("milvus", {}),
        ("milvus server", {}),
        ("elasticsearch", {"store_params": EXACT}),
    ],
    ids=str,
)
def test_collapsed_hits_are_those_of_the_whole_ranking(
    engine: str, settings: dict[str, Any], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with filled(engine, random_nodes(), request=request, folder=tmp_path, **settings) as backend:
        for kind in (VectorRetriever, KeywordRetriever):
            whole = kind(backend, top_k=N_NODES)
            for seed, collapse in enumerate(COLLAPSES):
                query = query_of(seed)
                ranking = whole.retrieve(query)
                for top_k in (1, 7, 40):
                    found = kind(backend, top_k=top_k, collapse=collapse).search(query)
                    expected = collapse.of(ranking)[:top_k]
                    assert node_ids(found.hits) == node_ids(expected), (kind, collapse, top_k)
                    assert not found.degraded


@pytest.mark.parametrize("engine", ["embedded", "qdrant server", "milvus", "elasticsearch"])
def test_collapsed_hybrid_search_takes_as_many_candidates_as_it_needs(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"store_params": EXACT} if engine == "elasticsearch" else {}
    with filled(engine, random_nodes(), request=request, folder=tmp_path, **settings) as backend:
        whole = HybridRetriever(backend, top_k=N_NODES, candidates=N_NODES)
        retriever = HybridRetriever(
            backend, top_k=40, candidates=N_NODES, collapse=Collapse(), scope=Scope("a")
        )
        query = query_of(1)
        expected = Collapse().of(whole.for_scope(Scope("a")).retrieve(query))[:40]
        assert node_ids(retriever.retrieve(query)) == node_ids(expected)


def query_of(seed: int) -> Query:
    random.seed(seed)
    text = " ".join(random.sample(WORDS, k=2))
    return Query.of(QueryBundle(text, embedding=[random.gauss(0, 1) for _ in range(8)]))
