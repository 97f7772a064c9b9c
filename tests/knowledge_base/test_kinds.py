from collections.abc import Callable, Iterator
from typing import Any

import pytest
from llama_index.core.schema import Document, NodeRelationship, RelatedNodeInfo, TextNode

from llama_retrieval_ext import RRF, Collapse, HybridRetriever, KnowledgeBase, Scope, WeightedSum
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError, UnsupportedModeError
from llama_retrieval_ext.knowledge_base.kinds import StoreKind
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever
from llama_retrieval_ext.testing import FakeEmbedding


@pytest.fixture(scope="module")
def kb() -> Iterator[KnowledgeBase]:
    texts = {"leave": "annual leave", "sick": "sick leave of absence", "food": "the canteen"}
    documents = [Document(id_=id_, text=text, metadata={"id": id_}) for id_, text in texts.items()]
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as opened:
        opened.add(documents)
        yield opened


def test_hybrid_takes_candidates_and_any_kind_a_name(kb: KnowledgeBase) -> None:
    assert isinstance(kb.retriever(), HybridRetriever)
    retriever = kb.retriever("hybrid", candidates=1, top_k=1, name="handbook")
    result = retriever.explain("sick leave")
    assert result.trace is not None
    assert {hit.source for hit in result.hits} == {result.trace.name} == {"handbook"}
    assert {leg.count for leg in result.trace.children[-1].children} == {1}
    assert kb.retriever("vector", name="meaning").search("leave").hits[0].source == "meaning"


def test_hybrid_takes_a_fusion_and_a_weight(kb: KnowledgeBase) -> None:
    keyword_only = kb.retriever("hybrid", alpha=0.0).retrieve("leave")
    assert len(keyword_only) == 2
    assert len(kb.retriever("hybrid", fusion=WeightedSum()).retrieve("leave")) == 3


def test_an_unknown_kind_is_refused_with_the_right_spelling(kb: KnowledgeBase) -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'vector'"):
        kb.retriever("vektor")  # type: ignore[call-overload]


def test_options_of_hybrid_are_refused_elsewhere(kb: KnowledgeBase) -> None:
    with pytest.raises(ConfigurationError, match="'keyword' has no parameter"):
        kb.retriever("keyword", alpha=0.5)


def test_hybrid_with_pushdown_lets_the_engine_fuse(kb: KnowledgeBase) -> None:
    ours, pushed = kb.retriever(), kb.retriever(fusion=RRF(), pushdown=True)
    assert {hit.node_id for hit in pushed.retrieve("leave")} == {
        hit.node_id for hit in ours.retrieve("leave")
    }
    with pytest.raises(UnsupportedModeError, match="does not fuse"):
        kb.retriever(pushdown=True, fusion=RRF(), alpha=0.7)


def test_a_retriever_sees_what_is_added_after_it_was_made() -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        retriever = kb.retriever("keyword")
        kb.add([Document(id_="new", text="parental leave")])
        assert [hit.node.ref_doc_id for hit in retriever.retrieve("leave")] == ["new"]


@pytest.mark.parametrize(
    "engine", ["embedded", pytest.param("milvus", marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.parametrize("kind", ["vector", "keyword", "hybrid"])
def test_collapse_limits_hits_per_document_within_the_scope(
    open_kb: Callable[..., KnowledgeBase], kind: StoreKind
) -> None:
    with open_kb(require_scope=True) as kb:
        for tenant in "ab":
            kb.add(
                [
                    TextNode(text=f"annual leave {part}", **of(f"{tenant}-{document}"))
                    for document in range(3)
                    for part in range(4)
                ],
                scope=Scope(tenant),
            )
        retriever = kb.retriever(kind, top_k=3, collapse=Collapse())
        hits = retriever.for_scope(Scope("a")).retrieve("annual leave")
        assert sorted(str(hit.node.ref_doc_id) for hit in hits) == ["a-0", "a-1", "a-2"]
        with pytest.raises(ScopeRequiredError):
            KeywordRetriever(retriever.backend, collapse=Collapse()).retrieve("annual leave")


def of(document: str) -> dict[str, Any]:
    return {"relationships": {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)}}
