"""The sample that a copy takes of its source."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from llama_index.core.schema import Document

from llama_retrieval_ext.knowledge_base.copy import _source
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from tests.knowledge_base.conftest import PickyEmbedding


@pytest.mark.parametrize(("count", "least", "most"), [(1, 1, 1), (10, 5, 10), (100, 30, 30)])
def test_a_sample_is_spread_over_the_documents_and_has_at_most_the_requested_size(
    tmp_path: Path, model: PickyEmbedding, count: int, least: int, most: int
) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    with KnowledgeBase.open(url, embed_model=model) as kb:
        kb.add([Document(id_=f"d{n}", text=f"Page {n}.") for n in range(30)], show_progress=False)
    with ExitStack() as resources:
        source = _source(url, resources)
        sample = source.sample(source.ledger.entries(), count)
    assert least <= len(sample) <= most
    assert len({node.ref_doc_id for node in sample}) == len(sample)
