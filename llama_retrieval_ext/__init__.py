"""Retrieval for LlamaIndex: hybrid search, composition, isolation, explanation.

`__all__` lists the most common names. All other names are in sub-packages, such as
`llama_retrieval_ext.stages`, and can also be imported from here. Each name is loaded on first use,
so importing the package is fast.
"""

from llama_retrieval_ext.lazy import lazy_names

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
