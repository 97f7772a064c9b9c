"""BM25 in memory over a knowledge base."""

import pytest
from llama_index.core import Document

from llama_retrieval_ext import KnowledgeBase
from llama_retrieval_ext.config.store_retrievers import KeptBM25Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.testing.fakes import FakeEmbedding

TEXTS = ("leave leave leave", "annual leave in full and part time", "leave for parents", "lunch")


@pytest.mark.parametrize("top_k", [2, 3, 7])
def test_scores_of_llama_bm25_reach_from_0_to_1_over_the_hits_of_a_query(top_k: int) -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        kb.add([Document(text=text) for text in TEXTS], show_progress=False)
        hits = KeptBM25Retriever(kb).retrieve(Query("leave", top_k=top_k))
        scores = [hit.score or 0.0 for hit in hits]
        assert len(hits) == min(top_k, 3)
        assert scores == sorted(scores, reverse=True)
        assert (scores[0], scores[-1]) == (1.0, 0.0)
        (single,) = KeptBM25Retriever(kb).retrieve("lunch")
        assert single.score == 1.0
