"""Names of plain searches: dense, bm25, hybrid."""

import pytest
from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext import KnowledgeBase
from llama_retrieval_ext.arguments import arguments_of
from llama_retrieval_ext.config import Registry


def test_the_weights_of_hybrid_are_the_designs_except_in_a_knowledge_base(
    registry: Registry, kb: KnowledgeBase
) -> None:
    def alpha(retriever: BaseRetriever) -> object:
        return arguments_of(retriever).get("alpha")

    assert alpha(registry.get_retriever("hybrid")) == pytest.approx(0.7)
    assert alpha(kb.retriever("hybrid")) is None
    assert alpha(kb.retriever("hybrid", dense_weight=0.7, sparse_weight=0.3)) == pytest.approx(0.7)
    (inner,) = kb.retriever("rerank").children
    assert alpha(inner) is None
    assert "dense_weight=0.7" in str(KnowledgeBase.retriever.__doc__)
