"""The base classes of retrievers and stages, and how `>>` and `|` compose them."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.pipeline.fusion import Fusion
    from llama_retrieval_ext.pipeline.postprocessor import Postprocessed
    from llama_retrieval_ext.pipeline.retriever import Retriever
    from llama_retrieval_ext.pipeline.stages import FanOut, Refine, Rewrite


__all__ = ["FanOut", "Fusion", "Postprocessed", "Refine", "Retriever", "Rewrite"]

# A type checker that saw these would take any misspelled name for one of ours.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.pipeline.fusion": ("Fusion",),
        "llama_retrieval_ext.pipeline.postprocessor": ("Postprocessed",),
        "llama_retrieval_ext.pipeline.retriever": ("Retriever",),
        "llama_retrieval_ext.pipeline.stages": ("FanOut", "Refine", "Rewrite"),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
