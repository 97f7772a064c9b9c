"""Two tenants in one graph: nothing that one is answered depends on the other's rows."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.indices.vector_store import VectorStoreIndex
from llama_index.core.schema import TextNode

from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.graph.elements import Edge
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.entity_linking import EntityLinker
from llama_retrieval_ext.graph.passage_graphs import PassageGraphs
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.retrievers.graph import GraphRetriever
from llama_retrieval_ext.retrievers.vector import VectorRetriever
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.quick import examples

MODEL = FakeEmbedding()
LINKS = PassageLinks(entity_fields=["tags"])
NAMES = ("Anne Lister", "Night Train", "Halifax", "crane", "hook", "安全生产法")
QUERIES = ("Night Train by Anne Lister", "crane hook", "《安全生产法》 Halifax")

_passages = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.lists(st.sampled_from([*NAMES, "rose", "met", "old"]), min_size=1, max_size=6),
        st.lists(st.sampled_from(NAMES), max_size=2),
    ),
    min_size=1,
    max_size=8,
)
_edges = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=5)


def nodes_of(tenant: str, passages: list[tuple[str, list[str], list[str]]]) -> list[TextNode]:
    """Return the passages of a tenant as embedded nodes."""
    return [
        TextNode(
            id_=f"{tenant}-{number}",
            text=" ".join(said),
            metadata={"title": title, "tags": tags, "tenant_id": tenant},
            embedding=MODEL.get_text_embedding(" ".join(said)),
        )
        for number, (title, said, tags) in enumerate(passages)
    ]


def answers(store: VectorStoreIndex, graph: EmbeddedGraph) -> list[object]:
    """Return all that one tenant is told: hits, scores, paths, linked names."""
    scope = Scope("acme")
    graphs = PassageGraphs(graph, links=LINKS)
    seed = VectorRetriever(store)
    linker = EntityLinker(graph)
    told: list[object] = []
    for query in QUERIES:
        told.append(run(linker.link(query, scope=scope)))
        for retriever in (
            GraphRetriever(store, graph=graphs, embed_model=MODEL, linker=linker),
            GraphRetriever(store, graph=graphs, seed=seed, embed_model=MODEL, linker=linker),
        ):
            hits = retriever.search(query, scope=scope).hits
            told.append(
                [(h.node_id, h.score, h.matched_entities, h.hop_distance, h.path) for h in hits]
            )
    return told


@settings(examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(own=_passages, own_edges=_edges, other=_passages, other_edges=_edges)
def test_an_answer_does_not_depend_on_another_tenant_s_rows(
    own: list[tuple[str, list[str], list[str]]],
    own_edges: list[tuple[str, str]],
    other: list[tuple[str, list[str], list[str]]],
    other_edges: list[tuple[str, str]],
) -> None:
    with EmbeddedGraph(":memory:") as graph:
        store = VectorStoreIndex([], embed_model=MODEL)
        for tenant, passages, edges in (("acme", own, own_edges), ("globex", other, other_edges)):
            if tenant == "globex":
                before = answers(store, graph)
            nodes = nodes_of(tenant, passages)
            store.insert_nodes(nodes)
            rows = passage_rows(nodes, LINKS)
            where = {"tenant_id": tenant}
            between = [Edge.of(source, "NEAR", target, where) for source, target in edges]
            # What names another's passages leads nowhere.
            across = [Edge.of(f"{tenant}-0", "CITES", "acme-0", where)] if tenant != "acme" else []
            graph.upsert(rows.nodes, [*rows.edges, *between, *across]).function()
        assert answers(store, graph) == before
