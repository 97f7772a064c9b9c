"""Graph retrieval over a real Neo4j: the answers of the embedded graph, one round trip a hop."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from unittest.mock import Mock

import pytest

from llama_retrieval_ext import HybridRetriever, Query, Scope
from llama_retrieval_ext.graph import PassageGraphs
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.expansion import expand
from llama_retrieval_ext.graph.neo4j import Neo4jGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from llama_retrieval_ext.retrievers import GraphRetriever
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding, sample_nodes
from tests.servers.neo4j import neo4j_url

__all__ = ["neo4j_url"]

pytestmark = pytest.mark.slow

MODEL = FakeEmbedding()
LINKS = PassageLinks(entity_fields=["tags"], gazetteer=["年假", "parse_filters", "canteen"])
QUERIES = ("parse_filters and the canteen", "员工年假", "how much annual leave is there?")
SCOPES = (None, Scope("acme"), Scope("globex", kb_ids=["handbook"]), Scope("nobody"))


@pytest.fixture
def embedded() -> Iterator[EmbeddedGraph]:
    with EmbeddedGraph(":memory:") as graph:
        graph.upsert(*passage_rows(sample_nodes(), LINKS))
        yield graph


@pytest.fixture
def server(neo4j_url: str) -> Iterator[Neo4jGraph]:
    with closing(Neo4jGraph.open(neo4j_url)) as graph:
        graph.clear(scope=None)
        graph.upsert(*passage_rows(sample_nodes(), LINKS))
        yield graph
        graph.clear(scope=None)


def retrievers(
    store: EmbeddedVectorStore, graph: GraphBackend
) -> tuple[GraphRetriever, GraphRetriever]:
    """Return entity search by hops, and a walk."""
    graphs = PassageGraphs(graph, links=LINKS)
    seed = HybridRetriever(store, embed_model=MODEL)
    return (
        GraphRetriever(store, graph=graphs, embed_model=MODEL),
        GraphRetriever(store, graph=graphs, embed_model=MODEL, seed=seed),
    )


def shown(retriever: GraphRetriever, query: str, scope: Scope | None) -> list[object]:
    result = retriever.search(query, scope=scope)
    assert not result.degraded
    again = asyncio.run(retriever.aretrieve(Query(query, scope=scope)))
    assert [hit.node.node_id for hit in again] == [hit.node_id for hit in result.hits]
    return [hit.to_dict() for hit in result.hits]


def test_hops_and_walks_on_neo4j_answer_as_on_the_embedded_graph(
    store: EmbeddedVectorStore, embedded: EmbeddedGraph, server: Neo4jGraph
) -> None:
    pairs = zip(retrievers(store, embedded), retrievers(store, server), strict=True)
    found = 0
    for here, there in pairs:
        for query in QUERIES:
            for scope in SCOPES:
                expected = shown(here, query, scope)
                assert shown(there, query, scope) == expected
                found += len(expected)
    assert found > 50


def test_neo4j_gets_one_request_a_hop_and_none_for_a_walk(
    store: EmbeddedVectorStore, server: Neo4jGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Mock(wraps=server.connection.read)
    expand(server, ["canteen"], max_hops=3, scope=Scope("acme"))  # asks whether facts have dates
    monkeypatch.setattr(server.connection, "read", read)
    expand(server, ["canteen"], max_hops=3, scope=Scope("acme"))
    assert read.call_count == 3
    by_hops, by_walk = retrievers(store, server)
    for retriever, most in ((by_hops, 5), (by_walk, 0)):  # three hops, and nodes twice
        retriever.search("canteen", scope=Scope("acme"))
        read.reset_mock()
        assert retriever.search("parse_filters canteen", scope=Scope("acme")).hits
        statements = [call.args[0] for call in read.call_args_list]
        assert len(statements) <= most
        assert sum("frontier" in statement for statement in statements) == min(most, 3)
