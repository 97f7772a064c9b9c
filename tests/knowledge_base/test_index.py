from pathlib import Path

import pytest
from llama_index.core import Document

from llama_retrieval_ext import KnowledgeBase, Query
from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.testing.fakes import FakeEmbedding


def test_a_knowledge_base_is_indexed_and_says_how(tmp_path: Path) -> None:
    documents = [Document(id_=f"d{n}", text=f"leave of {n} days") for n in range(60)]
    params = {"vectors": "int8", "index": "hnsw"}
    model = FakeEmbedding()
    with KnowledgeBase.open(
        f"embedded:{tmp_path}/kb", embed_model=model, store_params=params
    ) as kb:
        kb.add(documents, show_progress=False).raise_for_failures()
        info = kb.info().index
        assert info is not None
        assert (info.vectors, info.index, info.indexed) == ("int8", "hnsw", 0)
        assert kb.index().indexed == kb.count() == 60
        assert kb.check_recall(20, top_k=5) >= 0.98
        found = kb.search("leave of 7 days").hits
        assert {hit.node.ref_doc_id for hit in found}
        exact = kb.retriever("vector").explain(Query("leave of 7 days", exact=True))
        assert "'exact'" in str(exact.to_dict())
    with KnowledgeBase.open(f"embedded:{tmp_path}/kb", embed_model=model) as kb:
        assert (kb.count(), kb.info().index) == (60, kb.index())


@pytest.mark.slow
def test_other_engines_index_by_themselves(tmp_path: Path) -> None:
    pytest.importorskip("qdrant_client")
    with KnowledgeBase.open(f"qdrant:{tmp_path}/q", embed_model=FakeEmbedding()) as kb:
        assert kb.info().index is None
        with pytest.raises(UnsupportedModeError, match="builds its index by itself"):
            kb.index()
