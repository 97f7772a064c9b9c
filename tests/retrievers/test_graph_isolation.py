"""Two tenants in one graph: nothing that one is answered depends on the other's rows."""

from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.indices.vector_store import VectorStoreIndex
from llama_index.core.schema import TextNode

from llama_retrieval_ext import Scope, VectorRetriever
from llama_retrieval_ext.graph import Edge, EntityLinker, PassageGraphs
from llama_retrieval_ext.graph.backend import WritableGraph as Graph
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from llama_retrieval_ext.retrievers import GraphRetriever, KGRetriever
from llama_retrieval_ext.testing import FakeEmbedding
from llama_retrieval_ext.testing.graph_contract import answer
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
_types = st.sampled_from(("USES", "HAS_HAZARD", "CAUSES", "MITIGATED_BY"))
_edges = st.lists(st.tuples(st.sampled_from(NAMES), _types, st.sampled_from(NAMES)), max_size=8)
# Whose the other rows are: another tenant's, another knowledge base's, nobody's.
_others = st.sampled_from(
    ({"tenant_id": "globex", "kb_id": "own"}, {"tenant_id": "acme", "kb_id": "other"}, {})
)
OWN = {"tenant_id": "acme", "kb_id": "own"}
SCOPE = Scope("acme", kb_ids=["own"])

Passages: TypeAlias = list[tuple[str, list[str], list[str]]]
Edges: TypeAlias = list[tuple[str, str, str]]


def write(
    where: dict[str, str], passages: Passages, edges: Edges, store: VectorStoreIndex, graph: Graph
) -> None:
    """Write passages and edges into a partition."""
    nodes = [
        TextNode(
            id_=f"{'-'.join(where.values())}-{number}",
            text=" ".join(said),
            metadata={"title": title, "tags": tags, **where},
            embedding=MODEL.get_text_embedding(" ".join(said)),
        )
        for number, (title, said, tags) in enumerate(passages)
    ]
    store.insert_nodes(nodes)
    rows = passage_rows(nodes, LINKS)
    between = [Edge.of(*edge, where) for edge in edges]
    # What names another's passages leads nowhere.
    across = [Edge.of(nodes[0].node_id, "CITES", "acme-own-0", where)] if where != OWN else []
    graph.upsert(rows.nodes, [*rows.edges, *between, *across])


def answers(store: VectorStoreIndex, graph: Graph) -> list[object]:
    """Return all that a scope sees: linked names, hits, scores, paths, conclusions, proofs."""
    graphs = PassageGraphs(graph, links=LINKS)
    linker = EntityLinker(graph)
    retrievers = (
        GraphRetriever(store, graph=graphs, embed_model=MODEL, linker=linker),
        GraphRetriever(
            store, graph=graphs, seed=VectorRetriever(store), embed_model=MODEL, linker=linker
        ),
        KGRetriever(graph, linker=linker),
    )
    seen: list[object] = [answer(graph.plan_names(scope=SCOPE))]
    for query in QUERIES:
        seen.append(linker.link(query, scope=SCOPE))
        for retriever in retrievers:
            hits = retriever.search(query, scope=SCOPE).hits
            seen.append([(h.to_dict(), h.path, h.hop_distance, h.proof) for h in hits])
    return seen


_rows = st.tuples(_passages, _edges)


@settings(examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(own=_rows, other=_rows, where=_others)
@pytest.mark.slow
def test_graph_answers_do_not_depend_on_another_tenants_rows(
    own: tuple[Passages, Edges], other: tuple[Passages, Edges], where: dict[str, str]
) -> None:
    with EmbeddedGraph(":memory:") as graph:
        store = VectorStoreIndex([], embed_model=MODEL)
        write(OWN, *own, store, graph)
        before = answers(store, graph)
        write(where, *other, store, graph)
        assert answers(store, graph) == before
