"""Base classes of retrievers and stages, and their composition by `>>` and `|`."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.pipeline.explanation import Explanation
    from llama_retrieval_ext.pipeline.fusion import Fusion
    from llama_retrieval_ext.pipeline.postprocessor import Postprocessed
    from llama_retrieval_ext.pipeline.retriever import Retriever
    from llama_retrieval_ext.pipeline.stages import FanOut, Refine, Rewrite
    from llama_retrieval_ext.pipeline.why_not import WhyNot, WhyNotReason


__all__ = [
    "Explanation",
    "FanOut",
    "Fusion",
    "Postprocessed",
    "Refine",
    "Retriever",
    "Rewrite",
    "WhyNot",
    "WhyNotReason",
]

# Hidden from type checkers: `__getattr__` would make them accept any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.pipeline.explanation": ("Explanation",),
        "llama_retrieval_ext.pipeline.fusion": ("Fusion",),
        "llama_retrieval_ext.pipeline.postprocessor": ("Postprocessed",),
        "llama_retrieval_ext.pipeline.retriever": ("Retriever",),
        "llama_retrieval_ext.pipeline.stages": ("FanOut", "Refine", "Rewrite"),
        "llama_retrieval_ext.pipeline.why_not": ("WhyNot", "WhyNotReason"),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
