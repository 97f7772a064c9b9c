"""What may stand where a reranker is wanted."""

import pytest
from llama_index.core.postprocessor import LongContextReorder

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.pipeline.postprocessor import Postprocessed
from llama_retrieval_ext.stages.rerank.chain import as_reranker
from llama_retrieval_ext.stages.rerank.mmr import MMR
from llama_retrieval_ext.stages.rerank.models import ModelRerank


class Ranker:
    def rank(self, query: str, docs: list[str], doc_ids: list[int]) -> list[object]:
        return []


def test_stages_postprocessors_and_rankers_are_rerankers() -> None:
    stage, postprocessor, ranker = MMR(), LongContextReorder(), Ranker()
    assert as_reranker(stage) is stage
    assert as_reranker(postprocessor) == Postprocessed(postprocessor)
    assert as_reranker(ranker) == ModelRerank(ranker)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["cohere", None, Ranker])
def test_everything_else_is_refused_with_what_is_wanted(part: object) -> None:
    with pytest.raises(ConfigurationError, match="LlamaIndex postprocessor"):
        as_reranker(part)  # type: ignore[arg-type]
