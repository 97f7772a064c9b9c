"""Small chunks found, their parents returned where enough of them were found."""

import asyncio
from collections.abc import Sequence
from threading import Barrier

import pytest
from llama_index.core.indices.vector_store import VectorStoreIndex
from llama_index.core.schema import (
    BaseNode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.storage_context import StorageContext

from llama_retrieval_ext import Hit, Query, Retriever, Scope
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution import Plan
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers import AutoMergingRetriever
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever
from tests.cases import cases
from tests.meeting import Meeting, met_by_the_loop
from tests.searching import Searched


def related(*ids: str) -> list[RelatedNodeInfo]:
    return [RelatedNodeInfo(node_id=id_) for id_ in ids]


def family(
    parent: str, n: int, *, metadata: dict[str, str] | None = None, of: str | None = None
) -> list[TextNode]:
    """A parent, and ``n`` children that know it and each other: ``P0``, ``P1``, ..."""
    ids = [f"{parent}{place}" for place in range(n)]
    above = TextNode(id_=parent, text=parent, metadata=metadata or {})
    above.relationships[NodeRelationship.CHILD] = related(*ids)
    if of is not None:
        above.relationships[NodeRelationship.PARENT] = related(of)[0]
    children = [TextNode(id_=id_, text=id_, metadata=metadata or {}) for id_ in ids]
    for place, child in enumerate(children):
        child.relationships[NodeRelationship.PARENT] = related(parent)[0]
        if place > 0:
            child.relationships[NodeRelationship.PREVIOUS] = related(ids[place - 1])[0]
        if place < n - 1:
            child.relationships[NodeRelationship.NEXT] = related(ids[place + 1])[0]
    return [above, *children]


class Candidate(Retriever):
    """Finds these nodes of a docstore."""

    def __init__(self, nodes: Sequence[BaseNode], scores: dict[str, float]) -> None:
        super().__init__(top_k=20, name="chunks")
        self.found = [(node, scores[node.node_id]) for node in nodes if node.node_id in scores]

    def plan(self, query: Query) -> Plan[list[Hit]]:
        yield from ()
        hits = [Hit(node=node, score=score, source=self.name) for node, score in self.found]
        return sorted(hits, key=lambda hit: (-(hit.score or 0), hit.node.node_id))


def docstore(nodes: Sequence[BaseNode], *, without: Sequence[str] = ()) -> SimpleDocumentStore:
    store = SimpleDocumentStore()
    store.add_documents([node for node in nodes if node.node_id not in without])
    return store


def merging(nodes: Sequence[BaseNode], scores: dict[str, float], **options: object) -> Retriever:
    retriever = Candidate(nodes, scores)
    return AutoMergingRetriever(retriever, docstore(nodes), **options)  # type: ignore[arg-type]


def scores(hits: Sequence[NodeWithScore]) -> list[tuple[str, float | None]]:
    return [(hit.node.node_id, hit.score) for hit in hits]


P = family("P", 4)


# What is found of four or eight children of ``P`` beside another node, and what is returned.
MERGED: dict[str, tuple[int, dict[str, float], dict[str, object], dict[str, float]]] = {
    "more than the threshold": (
        4,
        {"P0": 0.9, "P1": 0.6, "P2": 0.3, "other": 0.5},
        {},
        {"P": 0.6, "other": 0.5},
    ),
    "exactly the threshold": (4, {"P0": 0.9, "P1": 0.6}, {}, {"P0": 0.9, "P1": 0.6}),
    "a lower threshold": (4, {"P0": 0.9, "P1": 0.6}, {"simple_ratio_thresh": 0.49}, {"P": 0.75}),
    "the best score": (4, {"P0": 0.9, "P1": 0.6, "P2": 0.3}, {"merged_score": "max"}, {"P": 0.9}),
    "neighbours that were found": (
        8,
        {"P0": 0.9, "P1": 0.1, "P2": 0.7, "P3": 0.6},
        {},
        {"P0": 0.9, "P2": 0.7, "P3": 0.6, "P1": 0.1},
    ),
}


@cases(("n", "found", "options", "expected"), MERGED.values())
def test_a_parent_replaces_its_children_if_more_than_the_threshold_were_found(
    n: int,
    found: dict[str, float],
    options: dict[str, object],
    expected: dict[str, float],
    searched: Searched,
) -> None:
    nodes = [*family("P", n), TextNode(id_="other", text="other")]
    hits = searched(merging(nodes, found, **options), "query").hits
    assert node_ids(hits) == [*expected]
    assert [hit.score for hit in hits] == pytest.approx([*expected.values()])


def test_a_gap_between_two_neighbours_is_filled_with_the_mean_of_their_scores(
    searched: Searched,
) -> None:
    nodes = family("P", 8)
    retriever = merging(nodes, {"P0": 0.9, "P2": 0.5})
    result = searched(retriever, "query")
    assert node_ids(result.hits) == ["P0", "P1", "P2"]
    assert [hit.score for hit in result.hits] == pytest.approx([0.9, 0.7, 0.5])
    assert result.hits[1].source == "auto_merging"


def test_a_missing_parent_keeps_its_children_and_degrades_once(searched: Searched) -> None:
    store = docstore(P, without=["P"])
    found = Candidate(P, {"P0": 0.9, "P1": 0.6, "P2": 0.3})
    result = searched(AutoMergingRetriever(found, store), "query")
    assert node_ids(result.hits) == ["P0", "P1", "P2"]
    assert [part.reason for part in result.degraded] == ["the docstore lacks 1 node: ['P']"]


def test_a_failing_docstore_keeps_the_found_hits(searched: Searched) -> None:
    class Down(SimpleDocumentStore):
        def get_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
            raise ConnectionError("docstore down")

    found = Candidate(P, {"P0": 0.9, "P1": 0.6, "P2": 0.3})
    result = searched(AutoMergingRetriever(found, Down()), "query")
    assert node_ids(result.hits) == ["P0", "P1", "P2"]
    assert {part.reason for part in result.degraded} == {"ConnectionError: docstore down"}


class ReadsInPairs(SimpleDocumentStore):
    """Reads two nodes at the same time or none; has no batch call of its own."""

    _two = Barrier(2, timeout=10)

    def get_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        self._two.wait()
        return super().get_document(doc_id, raise_error)


def test_parents_are_read_in_parallel_if_the_docstore_has_no_batch_call(searched: Searched) -> None:
    nodes = [node for name in "ABCDEF" for node in family(name, 4)]
    store = ReadsInPairs()
    store.add_documents(nodes)
    found = Candidate(nodes, {f"{name}{n}": 0.5 for name in "ABCDEF" for n in range(3)})
    hits = searched(AutoMergingRetriever(found, store), "query").hits
    assert node_ids(hits) == list("ABCDEF")


def test_a_docstore_with_an_async_batch_call_is_awaited() -> None:
    class Awaited(SimpleDocumentStore):
        async def aget_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
            calls.append(sorted(node_ids))
            return await super().aget_nodes(node_ids, raise_error)

    calls: list[list[str]] = []
    store = Awaited()
    store.add_documents(P)
    retriever = AutoMergingRetriever(Candidate(P, {"P0": 0.9, "P1": 0.6, "P2": 0.3}), store)
    assert node_ids(asyncio.run(retriever.aretrieve("query"))) == ["P"]
    assert calls == [["P"]]


def test_gaps_and_parents_of_a_level_are_one_call(searched: Searched) -> None:
    class Counted(SimpleDocumentStore):
        def get_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
            calls.append(sorted(node_ids))
            return super().get_nodes(node_ids, raise_error)

    calls: list[list[str]] = []
    store = Counted()
    store.add_documents(P)
    result = searched(AutoMergingRetriever(Candidate(P, {"P0": 0.9, "P2": 0.3}), store), "query")
    assert node_ids(result.hits) == ["P"]
    assert calls == [["P", "P1"]]


def test_parents_merge_into_theirs_level_by_level(searched: Searched) -> None:
    top = TextNode(id_="top", text="top")
    top.relationships[NodeRelationship.CHILD] = related("A", "B")
    nodes = [top, *family("A", 2, of="top"), *family("B", 2, of="top")]
    found = {"A0": 0.8, "A1": 0.6, "B0": 0.4, "B1": 0.2}
    result = searched(merging(nodes, found), "query")
    assert node_ids(result.hits) == ["top"]
    assert result.hits[0].score == pytest.approx(0.5)
    half = searched(merging(nodes, {"A0": 0.8, "A1": 0.6, "B0": 0.4}), "query")
    assert node_ids(half.hits) == ["A", "B0"]
    assert [hit.score for hit in half.hits] == pytest.approx([0.7, 0.4])


def test_parents_in_a_circle_come_to_an_end(searched: Searched) -> None:
    a, b = TextNode(id_="a", text="a"), TextNode(id_="b", text="b")
    for node, parent in ((a, "b"), (b, "a")):
        node.relationships[NodeRelationship.PARENT] = related(parent)[0]
        node.relationships[NodeRelationship.CHILD] = related(parent)
    assert len(searched(merging([a, b], {"a": 0.9}), "query").hits) == 1


def test_nodes_outside_the_scope_are_not_filled_in_or_merged_into(searched: Searched) -> None:
    ours, theirs = {"tenant_id": "acme"}, {"tenant_id": "globex"}
    nodes = family("P", 3, metadata=ours)
    nodes[0].metadata = theirs  # the parent
    nodes[2].metadata = theirs  # the chunk in the middle
    retriever = merging(nodes, {"P0": 0.9, "P2": 0.5})
    scoped = searched(retriever, Query("query", scope=Scope("acme")))
    assert node_ids(scoped.hits) == ["P0", "P2"]
    assert scoped.degraded == ()
    assert node_ids(searched(retriever, "query").hits) == ["P"]


def test_a_parent_without_a_child_list_replaces_any_child(searched: Searched) -> None:
    nodes = family("P", 2)
    del nodes[0].relationships[NodeRelationship.CHILD]
    assert node_ids(searched(merging(nodes, {"P0": 0.9}), "query").hits) == ["P"]


def test_the_arguments_of_llama_indexs_auto_merging_work_unchanged() -> None:
    nodes = [*family("leave", 4), *family("lunch", 4)]
    context = StorageContext.from_defaults()
    context.docstore.add_documents(nodes)
    leaves = [node for node in nodes if node.parent_node is not None]
    index = VectorStoreIndex(leaves, storage_context=context, embed_model=FakeEmbedding())
    retriever = AutoMergingRetriever(
        index.as_retriever(similarity_top_k=3),
        context,
        simple_ratio_thresh=0.5,
        verbose=False,
        callback_manager=None,
        object_map=None,
        objects=None,
    )
    assert node_ids(retriever.retrieve("leave0 leave1 leave3")) == ["leave"]
    assert node_ids(asyncio.run(retriever.aretrieve("lunch0 lunch1 lunch2"))) == ["lunch"]


def test_a_threshold_outside_0_to_1_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="simple_ratio_thresh"):
        AutoMergingRetriever(FakeRetriever(), SimpleDocumentStore(), 1.0)


def test_a_blocking_docstore_leaves_the_event_loop_free() -> None:
    class Slow(SimpleDocumentStore):
        def get_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
            meeting.join()
            return super().get_nodes(node_ids, raise_error)

    meeting = Meeting(2)
    retriever = AutoMergingRetriever(Candidate(P, {"P0": 0.9}), Slow())
    result = asyncio.run(met_by_the_loop(retriever, meeting))
    assert scores(result.hits) == [("P0", 0.9)]
