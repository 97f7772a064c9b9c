"""Whatever can rerank, as a stage."""

from typing import TypeAlias

from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stages.algebra.refine import Refine
from llama_retrieval_ext.stages.reranking.model_rerank import ModelRerank, Ranker
from llama_retrieval_ext.stages.reranking.postprocessed import Postprocessed

AnyReranker: TypeAlias = Refine | BaseNodePostprocessor | Ranker


def as_reranker(part: AnyReranker) -> Refine:
    """A stage as it is; a LlamaIndex postprocessor or a ranker of ``rerankers`` as a stage.

    Raises:
        ConfigurationError: It is none of these.
    """
    if isinstance(part, Refine):
        return part
    if isinstance(part, BaseNodePostprocessor):
        return Postprocessed(part)
    if isinstance(part, Ranker) and not isinstance(part, type):
        return ModelRerank(part)
    raise ConfigurationError(
        "a reranker is a stage such as RuleRerank(), a LlamaIndex postprocessor, or a model with "
        f"rank(query, docs, doc_ids); got {part!r}"
    )
