"""Effects for custom stages that do I/O, and limits for the parts of a retriever."""

from llama_retrieval_ext.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
