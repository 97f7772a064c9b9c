"""The embedded graph on disk, and as LlamaIndex's property graph store."""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from llama_index.core import Document
from llama_index.core.graph_stores.types import KG_NODES_KEY, KG_RELATIONS_KEY, EntityNode, Relation
from llama_index.core.indices.property_graph import PropertyGraphIndex
from llama_index.core.schema import BaseNode, TransformComponent
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_retrieval_ext.errors import ConfigurationError, UnsupportedModeError
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.backend import ANY_HOP
from llama_retrieval_ext.graph.elements import Edge, GraphNode, Hop
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.embedded_store import EmbeddedPropertyGraphStore
from llama_retrieval_ext.graph.expansion import aexpand, expand, expand_each
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.testing.fakes import FakeEmbedding


@pytest.fixture
def store() -> Iterator[EmbeddedPropertyGraphStore]:
    with EmbeddedPropertyGraphStore(":memory:") as store:
        store.upsert_nodes([EntityNode(name=name, label="X") for name in "abcd"])
        store.upsert_relations(
            [Relation(label="R", source_id=s, target_id=t) for s, t in ("ab", "cb", "cd")]
        )
        yield store


def triples(found: object) -> list[tuple[str, str, str]]:
    assert isinstance(found, list)
    return [(source.id, relation.label, target.id) for source, relation, target in found]


def test_a_relation_map_goes_both_ways_nearest_first(store: EmbeddedPropertyGraphStore) -> None:
    found = store.get_rel_map(store.get(ids=["a"]), depth=3)
    assert triples(found) == [("a", "R", "b"), ("c", "R", "b"), ("c", "R", "d")]
    assert triples(store.get_rel_map(store.get(ids=["a"]), depth=3, limit=1)) == [("a", "R", "b")]
    for nothing in ({"ignore_rels": ["R"]}, {"depth": 0}, {"limit": 0}):
        assert store.get_rel_map(store.get(ids=["a"]), **nothing) == []


def test_a_relation_map_walks_along_ignored_relations_and_leaves_them_out(
    store: EmbeddedPropertyGraphStore,
) -> None:
    store.upsert_relations([Relation(label="FAR", source_id="d", target_id="e")])
    found = store.get_rel_map(store.get(ids=["a"]), depth=4, limit=1, ignore_rels=["R"])
    assert triples(found) == [("d", "FAR", "e")]


def test_an_empty_list_of_ids_gives_no_nodes(store: EmbeddedPropertyGraphStore) -> None:
    assert store.get(ids=[]) == []
    assert len(store.get()) == 4
    assert store.get_triplets() == []


def test_deleting_a_node_leaves_its_neighbours(store: EmbeddedPropertyGraphStore) -> None:
    store.delete(entity_names=["c"])
    assert [node.id for node in store.get()] == ["a", "b", "d"]
    assert triples(store.get_triplets(relation_names=["R"])) == [("a", "R", "b")]
    store.delete(relation_names=["R"])
    assert len(store.get()) == 3
    assert store.get_triplets(relation_names=["R"]) == []


def test_entities_are_found_by_embedding(store: EmbeddedPropertyGraphStore) -> None:
    store.upsert_nodes(
        [EntityNode(name="a", embedding=[1, 0]), EntityNode(name="b", embedding=[1, 1])]
    )
    query = VectorStoreQuery(query_embedding=[1, 0], similarity_top_k=2)
    nodes, scores = store.vector_query(query)
    assert [node.id for node in nodes] == ["a", "b"]
    assert scores == pytest.approx([1, 0.5**0.5])


def test_an_embedded_property_graph_store_refuses_cypher(store: EmbeddedPropertyGraphStore) -> None:
    with pytest.raises(UnsupportedModeError, match="neo4j://"):
        store.structured_query("MATCH (n) RETURN n")


class Words(TransformComponent):
    """An extractor without an LLM: neighbouring words are related."""

    def __call__(self, nodes: list[BaseNode], **_: object) -> list[BaseNode]:  # type: ignore[override]
        for node in nodes:
            words = node.get_content().split()
            metadata = dict(node.metadata)
            node.metadata[KG_NODES_KEY] = [
                EntityNode(name=word, properties=dict(metadata)) for word in words
            ]
            node.metadata[KG_RELATIONS_KEY] = [
                Relation(label="NEXT", source_id=a, target_id=b, properties=dict(metadata))
                for a, b in pairwise(words)
            ]
        return nodes


def written(store: EmbeddedPropertyGraphStore, *texts: str) -> PropertyGraphIndex:
    return PropertyGraphIndex.from_documents(
        [Document(id_=text, text=text) for text in texts],
        property_graph_store=store,
        kg_extractors=[Words()],
        embed_model=FakeEmbedding(),
        use_async=False,
    )


def test_a_property_graph_index_writes_reads_and_deletes() -> None:
    with EmbeddedPropertyGraphStore(":memory:") as store:
        written(store, "pit needs shoring", "crane needs checks")
        assert {"pit", "needs", "shoring"} <= {name for name, _ in names(store)}
        assert len(store.get_llama_nodes([node.id for node in store.get()])) == 2
        store.delete_llama_nodes(ref_doc_ids=["pit needs shoring"])
        assert [name for name, _ in names(store)] == ["checks", "crane", "needs"]
        assert triples(store.get_triplets(relation_names=["NEXT"])) == [
            ("crane", "NEXT", "needs"),
            ("needs", "NEXT", "checks"),
        ]


def test_two_tenants_in_one_property_graph_share_no_row() -> None:
    with EmbeddedPropertyGraphStore(":memory:") as store:
        acme, globex = (store.for_scope(Scope(tenant)) for tenant in ("acme", "globex"))
        written(acme, "pit needs shoring")
        before = names(acme), triples(acme.get_triplets(ids=["needs"]))
        written(globex, "pit needs guards")
        assert (names(acme), triples(acme.get_triplets(ids=["needs"]))) == before
        assert ("guards", "guards") in names(globex)


def names(store: EmbeddedPropertyGraphStore) -> list[tuple[str, str]]:
    return store.graph.names(scope=store.scope)


def test_an_expansion_lists_nodes_by_distance_with_their_paths() -> None:
    with EmbeddedGraph(":memory:") as graph:
        graph.upsert([], [Edge("a", "R", "b"), Edge("c", "R", "b"), Edge("c", "R", "d")])
        found = expand(graph, ["a"], max_hops=2)
        assert found.distances == {"a": 0, "b": 1, "c": 2}
        assert str(found.path("c")) == "a -R-> b <-R- c"
        assert "d" not in found
        assert list(expand(graph, ["a"], max_hops=2, limit=2)) == ["a", "b"]
        with pytest.raises(KeyError):
            found.path("d")
        assert asyncio.run(aexpand(graph, ["a"], max_hops=2)).distances == found.distances
        with pytest.raises(ConfigurationError, match="max_hops"):
            expand(graph, ["a"], max_hops=-1)


class RecordingGraph(EmbeddedGraph):
    """A graph that records the ids of each request."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.requests: list[list[str]] = []

    def plan_nodes(
        self, ids: Sequence[str], *, scope: Scope | None = None
    ) -> Call[dict[str, GraphNode]]:
        self.requests.append([*ids])
        return super().plan_nodes(ids, scope=scope)

    def plan_neighbours(
        self, frontier: Sequence[str], hop: Hop = ANY_HOP, *, scope: Scope | None = None
    ) -> Call[dict[str, list[Edge]]]:
        self.requests.append([*frontier])
        return super().plan_neighbours(frontier, hop, scope=scope)


def test_an_expansion_of_each_seed_requests_the_edges_and_the_content_of_a_node_once() -> None:
    with RecordingGraph() as graph:
        graph.upsert([], [Edge("a", "R", "b"), Edge("b", "R", "c")])
        plan = expand_each(
            graph,
            ["a", "b", "nobody"],
            max_hops=4,
            hop=Hop(),
            limit=10,
            scope=None,
            passable=lambda node: node.id != "c",
        )
        found = {seed: own.distances for seed, own in run(plan).items()}
        assert found == {"a": {"a": 0, "b": 1}, "b": {"b": 0, "a": 1}}
        assert graph.requests == [["a", "b", "nobody"], ["a", "b", "c"]]
