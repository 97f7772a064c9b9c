"""What a scope with principals is told of who else sees a passage: nothing, whatever it asks."""

import asyncio
import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, get_args

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import MockLLM
from llama_index.core.schema import BaseNode, Document, NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext import RRF, BM25Retriever, KnowledgeBase, Query, Scope, branches
from llama_retrieval_ext.capabilities import MemoryManager
from llama_retrieval_ext.graph import PassageLinks
from llama_retrieval_ext.knowledge_base.kinds import Kind, SearchKind
from llama_retrieval_ext.stages import Expand
from llama_retrieval_ext.testing import FakeEmbedding
from tests.cases import cases

ACME = Scope("acme")
ANN = Scope("acme", principals=["user:ann"])
NAMES = ["group:works-council", "user:ann"]
ASKED = Query("annual leave Apex", scope=ANN)


class Foreign(BaseRetriever):
    """A retriever of another package, which applies no scope."""

    def __init__(self, nodes: list[BaseNode]) -> None:
        super().__init__()
        self._nodes = nodes

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=node, score=0.5) for node in self._nodes]


@pytest.fixture(scope="module")
def kb() -> Iterator[KnowledgeBase]:
    """A document in two passages, for ann and a group."""
    links = PassageLinks(entity_fields=["tags"], phrases=False)
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=FakeEmbedding(), graph="graph::memory:", links=links
    ) as opened:
        text = "Annual leave at Apex is 25 days. " * 60
        document = Document(id_="leave", text=text, metadata={"tags": ["Apex"]})
        report = opened.add([document], scope=ACME, allowed=NAMES, show_progress=False)
        report.raise_for_failures()
        yield opened


async def _streamed(kb: KnowledgeBase) -> Sequence[NodeWithScore]:
    foreign = Foreign(kb.nodes())
    fused = branches(kb.retriever("keyword"), kb.retriever("vector"), foreign) >> RRF()
    partial = [hit for result in fused.stream(ASKED) for hit in result.hits]
    return partial + [hit async for result in fused.astream(ASKED) for hit in result.hits]


def _engine(kb: KnowledgeBase, name: str) -> list[NodeWithScore]:
    engine: Any = getattr(kb, f"as_{name}_engine")(llm=MockLLM(), scope=ANN)
    ask: Callable[[str], Any] = engine.query if name == "query" else engine.chat
    return list(ask("annual leave").source_nodes)


def _retrieved(kb: KnowledgeBase, kind: Kind) -> list[NodeWithScore]:
    return kb.retriever(kind).retrieve(ASKED)


WAYS: dict[str, Callable[[KnowledgeBase], Any]] = {
    **{
        kind: partial(_retrieved, kind=kind)
        for kind in [*get_args(SearchKind)]
        if kind != "kg_rule"  # there are no rules
    },
    "search": lambda kb: kb.search("annual leave", scope=ANN).hits,
    "asearch": lambda kb: asyncio.run(kb.retriever().asearch(ASKED)).hits,
    "aretrieve": lambda kb: asyncio.run(kb.retriever().aretrieve(ASKED)),
    "search_many": lambda kb: kb.retriever().search_many([ASKED])[0].hits,
    "explain": lambda kb: kb.retriever().explain(ASKED).hits,
    "stream": lambda kb: asyncio.run(_streamed(kb)),
    "expanded": lambda kb: (kb.retriever(top_k=1) >> Expand(4000)).retrieve(ASKED),
    "bm25": lambda kb: BM25Retriever(kb.nodes()).retrieve(ASKED),
    "query engine": lambda kb: _engine(kb, "query"),
    "chat engine": lambda kb: _engine(kb, "chat"),
    "get": lambda kb: kb.get("leave", scope=ANN),
    "nodes": lambda kb: kb.nodes(scope=ANN),
}


@cases("way", WAYS)
def test_a_passage_names_no_principals_but_those_who_ask(kb: KnowledgeBase, way: str) -> None:
    stored = copy.deepcopy(kb.get("leave", scope=ACME))
    items = WAYS[way](kb)
    nodes = [item.node if isinstance(item, NodeWithScore) else item for item in items]
    passages = [node for node in nodes if node.ref_doc_id == "leave"]
    assert passages
    assert all(node.metadata["allowed"] == ["user:ann"] for node in passages)
    assert "works-council" not in repr([item.model_dump() for item in items])
    assert kb.get("leave", scope=ACME) == stored  # for a trusted scope, and not changed
    assert {*stored[0].metadata["allowed"]} == {*NAMES}


@pytest.mark.parametrize("scope", [ANN, None])
def test_neighbours_are_shown_to_those_who_see_them_as_well(
    kb: KnowledgeBase, scope: Scope | None
) -> None:
    (best,) = kb.retriever("keyword", top_k=1, scope=ANN).retrieve("annual leave")
    bound = kb.retriever("keyword", top_k=1, scope=ANN) >> Expand(4000)
    (shown,) = bound.search("annual leave", scope=scope).hits
    assert len(shown.text) > len(best.text)


def test_memories_name_no_other_principals() -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        memories = MemoryManager(kb)
        memory = memories.remember("Apex likes tea", scope=ANN)
        kb.share(memory.id, allowed=NAMES, scope=ACME)
        both = [*memories.retrieve("tea", scope=ANN), *memories.retrieve_by_timerange(scope=ANN)]
        assert [each.scope for each in both] == [ANN, ANN]


def test_nodes_of_a_backend_in_memory_are_not_changed() -> None:
    node = TextNode(id_="n", text="annual leave", metadata={"allowed": NAMES})
    retriever = BM25Retriever([node])
    (hit,) = retriever.search("leave", scope=Scope(principals=["user:ann"])).hits
    assert (hit.node.metadata["allowed"], node.metadata["allowed"]) == (["user:ann"], NAMES)
    (hit,) = retriever.search("leave").hits
    assert hit.node.metadata["allowed"] == NAMES
