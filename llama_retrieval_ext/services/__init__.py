"""Services for applications: search, mimic, weekly reports, knowledge."""

from llama_retrieval_ext.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
