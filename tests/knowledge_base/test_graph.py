"""A knowledge base with a graph: both are in step, whatever happens."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.graph_stores import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import KG_NODES_KEY, KG_RELATIONS_KEY, EntityNode, Relation
from llama_index.core.indices.property_graph import ImplicitPathExtractor
from llama_index.core.schema import BaseNode, TransformComponent

from llama_retrieval_ext import RRF, KnowledgeBase, Scope
from llama_retrieval_ext.errors import ConfigurationError, GraphRequiredError, StoreUnavailableError
from llama_retrieval_ext.graph import Edge, GraphNode, PassageLinks, open_graph
from llama_retrieval_ext.graph.backend import WritableGraph
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.knowledge_base import copy_knowledge_base
from tests.knowledge_base.engines import EMBEDDED, SERVERS
from tests.knowledge_base.graphs import LINKS, check_in_step, rows
from tests.servers.neo4j import neo4j_url

__all__ = ["neo4j_url"]

Open = Callable[..., KnowledgeBase]
ACME, GLOBEX = Scope("acme", ["films"]), Scope("globex")


_NEO4J = pytest.param("embedded-neo4j", marks=pytest.mark.slow)
# For tests of what the graph does, whatever the engine of the passages.
GRAPHS = pytest.mark.parametrize("engine", ["embedded", _NEO4J], indirect=True)


@pytest.fixture(
    params=[
        "embedded",
        _NEO4J,
        *(pytest.param(server, marks=pytest.mark.slow) for server in SERVERS),
    ]
)
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine with an embedded graph, and the embedded one with Neo4j."""
    name: str = request.param
    return name


@pytest.fixture
def graph(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The URL of a graph with nothing in it."""
    if engine != "embedded-neo4j":
        return f"graph:{tmp_path / 'graph'}"
    url: str = request.getfixturevalue("neo4j_url")
    with closing(open_graph(url)) as opened:
        opened.clear(scope=None)
    return url


@pytest.fixture
def kb(open_kb: Open, graph: str) -> KnowledgeBase:
    return open_kb(graph=graph, links=LINKS)


def graph_of(kb: KnowledgeBase) -> WritableGraph:
    assert kb.graph is not None
    return kb.graph


def films(director: str = "Anne Lister", **metadata: Any) -> list[BaseNode]:
    return [
        Document(
            id_="film",
            text=f"Night Train was directed by {director}.",
            metadata={"title": "Night Train", "tags": [director, "film"], **metadata},
        ),
        Document(
            id_="anne", text="Born in York.", metadata={"title": "Anne Lister", "tags": "York"}
        ),
        Document(id_="other", text="Unrelated things.", metadata={"tags": ["film"]}),
    ]


def add(kb: KnowledgeBase, documents: Sequence[BaseNode], scope: Scope | None = None) -> None:
    kb.add(documents, scope=scope, show_progress=False).raise_for_failures()


@pytest.mark.slow
def test_the_graph_follows_every_change_of_documents(kb: KnowledgeBase, open_kb: Open) -> None:
    for scope in (ACME, GLOBEX):
        add(kb, films(), scope)
    check_in_step(kb, ACME, GLOBEX)
    theirs = rows(graph_of(kb), GLOBEX)
    add(kb, films("Bo Ek", year=2024)[:1], ACME)
    check_in_step(kb, ACME)
    assert kb.delete("anne", scope=ACME) == 1
    check_in_step(kb, ACME)
    kb.compact()
    assert kb.clear(scope=ACME) == 2
    check_in_step(kb, ACME)
    assert rows(graph_of(kb), GLOBEX) == rows(graph_of(kb)) == theirs


@pytest.mark.slow
@GRAPHS
def test_a_graph_search_finds_named_passages_of_its_own_tenant_only(kb: KnowledgeBase) -> None:
    add(kb, films(), ACME)
    add(kb, films("Bo Ek"), GLOBEX)
    for scope, expected in ((ACME, ["film", "anne"]), (GLOBEX, ["film"])):
        retriever = kb.retriever("graph", scope=scope)
        hits = retriever.search("who directed Night Train?").hits
        named = [hit for hit in hits if "NAMES" in (hit.path or "") or hit.hop_distance == 0]
        assert [hit.node.ref_doc_id for hit in named][: len(expected)] == expected
        assert {hit.node.metadata["tenant_id"] for hit in hits} == {scope.tenant_id}
    legs = kb.retriever("graph") | kb.retriever("keyword")
    hits = (legs >> RRF()).search("Night Train", scope=ACME).hits
    assert hits[0].node.ref_doc_id == "film"
    assert {contribution.leg for hit in hits for contribution in hit.contributions} == {
        "graph",
        "keyword",
    }


@pytest.mark.slow
@GRAPHS
def test_a_copy_includes_the_graph(
    kb: KnowledgeBase, url: str, graph: str, tmp_path: Path, open_kb: Open
) -> None:
    add(kb, films(), ACME)
    add(kb, films("Bo Ek"), GLOBEX)
    graph_of(kb).upsert([GraphNode("York", "City")], [Edge.of("York", "IN", "UK")])
    expected = rows(graph_of(kb))
    kb.close()
    target, target_graph = f"embedded:{tmp_path / 'copy'}", f"graph:{tmp_path / 'graph2'}"
    with pytest.raises(GraphRequiredError, match="its copy needs one"):
        copy_knowledge_base(url, target, show_progress=False)
    with pytest.raises(ConfigurationError, match="name another"):
        copy_knowledge_base(url, target, graph=graph, show_progress=False)
    for copied in (6, 0):
        report = copy_knowledge_base(url, target, graph=target_graph, show_progress=False)
        assert report.raise_for_failures().copied == copied
    with open_graph(target_graph) as opened:
        assert rows(opened) == expected
    with open_kb(graph=graph, links=LINKS) as source:
        source.delete("film", scope=ACME)
    copy_knowledge_base(url, target, graph=target_graph, mirror=True, show_progress=False)
    with KnowledgeBase.open(
        target, embed_model=kb.embed_model, graph=target_graph, links=LINKS
    ) as copy:
        check_in_step(copy, ACME, GLOBEX)
        assert len(copy.retriever("graph", scope=GLOBEX).retrieve("Night Train")) > 0


@pytest.mark.slow
@GRAPHS
def test_removal_deletes_its_rows_from_the_graph(kb: KnowledgeBase, url: str, graph: str) -> None:
    add(kb, films())
    own = GraphNode("crane", "Equipment", "Tower crane")
    graph_of(kb).upsert([own], [])
    kb.close()
    KnowledgeBase.remove(url)
    with closing(open_graph(graph)) as opened:
        assert rows(opened) == ([repr(("crane", "Equipment", "Tower crane", [], None))], [])


@pytest.mark.slow
@EMBEDDED
def test_the_graph_of_a_knowledge_base_is_recorded(
    open_kb: Open, url: str, tmp_path: Path, graph: str
) -> None:
    kb = open_kb(graph=graph)
    assert kb.info().graph == graph
    with open_kb(graph=graph) as again:  # in one process it can be open twice
        add(again, films())
    assert len(kb.retriever("graph").retrieve("Night Train")) == 3
    kb.close()
    with pytest.raises(GraphRequiredError, match=graph):
        open_kb()
    with pytest.raises(ConfigurationError, match=graph):
        open_kb(graph=f"graph:{tmp_path / 'another'}")
    with EmbeddedGraph(graph.removeprefix("graph:")) as opened:
        assert len(open_kb(graph=opened).documents()) == 3
        open_kb(graph=opened).close()
        assert opened.names(scope=None)  # whoever opened it closes it


@pytest.mark.slow
@EMBEDDED
def test_graphs_that_cannot_be_written_are_refused(open_kb: Open, url: str, graph: str) -> None:
    with pytest.raises(ConfigurationError, match="both be in memory or neither"):
        open_kb(graph="graph::memory:")
    with pytest.raises(ConfigurationError, match="cannot write to"):
        open_kb(graph=SimplePropertyGraphStore())
    with pytest.raises(ConfigurationError, match="are for a graph"):
        open_kb(links=PassageLinks())
    with open_kb() as plain:
        add(plain, films())
        with pytest.raises(ConfigurationError, match="needs a knowledge base with a graph"):
            plain.retriever("graph")
    with pytest.raises(ConfigurationError, match="made without a graph"):
        open_kb(graph=graph)
    target = f"{url}2"
    copy_knowledge_base(url, target, graph=graph, show_progress=False)
    with KnowledgeBase.open(target, embed_model=plain.embed_model, graph=graph) as copy:
        assert copy.retriever("graph").retrieve("Night Train")


@pytest.mark.slow
@EMBEDDED
def test_a_write_fails_before_it_begins_if_the_graph_is_down(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object, **__: object) -> None:
        raise StoreUnavailableError("the graph is down")

    add(kb, films()[:1])
    for method in ("nodes", "replace_sources"):  # before, and while it is written
        with monkeypatch.context() as patch:
            patch.setattr(kb.graph, method, down)
            with pytest.raises(StoreUnavailableError, match="is down"):
                kb.add(films(), show_progress=False)
        assert [document.document_id for document in kb.documents()] == ["film"]
        assert len(kb.retriever("keyword").retrieve("Born in York unrelated things")) == 0
        check_in_step(kb)
    with monkeypatch.context() as patch:
        patch.setattr(kb.graph, "delete_sources", down)
        with pytest.raises(StoreUnavailableError, match="is down"):
            kb.delete("film")
    add(kb, films())
    check_in_step(kb)


@pytest.mark.slow
@EMBEDDED
def test_a_graph_that_was_lost_is_filled_by_adding_again(
    kb: KnowledgeBase, graph: str, open_kb: Open, caplog: pytest.LogCaptureFixture
) -> None:
    add(kb, films())
    graph_of(kb).clear(scope=None)
    kb.close()
    again = open_kb(graph=graph, links=LINKS)
    assert "Add the documents again" in caplog.text
    add(again, films())
    check_in_step(again)


class Triples(TransformComponent):
    """An extractor that needs no LLM: what stands before and after ``was directed by``."""

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> Sequence[BaseNode]:
        for node in nodes:
            work, by, director = node.get_content().rstrip(".").partition(" was directed by ")
            named = [EntityNode(name=name, label="THING") for name in (work, director) if by]
            relations = [
                Relation(label="DIRECTED", source_id=director, target_id=work) for _ in named[:1]
            ]
            node.metadata[KG_NODES_KEY] = [*node.metadata.get(KG_NODES_KEY, []), *named]
            node.metadata[KG_RELATIONS_KEY] = [*node.metadata[KG_RELATIONS_KEY], *relations]
        return nodes


@pytest.mark.slow
@EMBEDDED
def test_llamaindex_extractors_write_into_the_graph(open_kb: Open, graph: str) -> None:
    kb = open_kb(graph=graph, kg_extractors=[ImplicitPathExtractor(), Triples()])
    add(kb, films(), ACME)

    def edges() -> set[tuple[str, str]]:
        found = graph_of(kb).contents(scope=ACME).edges
        return {(edge.type, edge.target) for edge in found}

    assert {("DIRECTED", "Night Train"), ("MENTIONS", "Anne Lister")} <= edges()
    assert ("SOURCE", "document:film") in edges()
    assert rows(graph_of(kb), Scope("globex")) == ([], [])
    (node,) = kb.get("film", scope=ACME)
    assert set(node.metadata) == {"title", "tags", "tenant_id", "kb_id"}
    add(kb, films("Bo Ek")[:1], ACME)
    assert ("MENTIONS", "Anne Lister") not in edges()
    kb.delete("film", scope=ACME)
    assert not {type_ for type_, _ in edges()} & {"DIRECTED", "MENTIONS"}


@pytest.mark.slow
@EMBEDDED
def test_a_mentioned_entity_keeps_its_properties(kb: KnowledgeBase) -> None:
    known = GraphNode("Anne Lister", "Person", "Anne", {"born": 1791})
    graph_of(kb).upsert([known], [])
    add(kb, films())
    kb.clear()
    assert graph_of(kb).nodes(["Anne Lister"], scope=None) == {"Anne Lister": known}


@pytest.mark.slow
@EMBEDDED
def test_options_of_retrievers_over_the_graph(kb: KnowledgeBase) -> None:
    add(kb, films())
    entities = kb.retriever("graph", seed=None, max_hops=1)
    assert entities.retrieve("York")[0].node.ref_doc_id == "anne"
    assert kb.retriever("kg_rule").retrieve("York") == []
    assert kb.retriever("knowledge").search("Night Train").cases
    with pytest.raises(ConfigurationError, match="'graph' has no parameter 'rules'"):
        kb.retriever("graph", rules="rules.yaml")
    with pytest.raises(ConfigurationError, match="'hybrid' has no parameter 'seed'"):
        kb.retriever("hybrid", seed=None)
