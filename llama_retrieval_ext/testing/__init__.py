"""Contracts, which need pytest, and fakes for tests of retrievers, stages and stores."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.testing.backend_contract import BackendContract, BothSearchesContract
    from llama_retrieval_ext.testing.corpus import sample_nodes
    from llama_retrieval_ext.testing.fake_backend import FakeBackend
    from llama_retrieval_ext.testing.fakes import (
        FakeAsyncRetriever,
        FakeEmbedding,
        FakeRetriever,
        FixedRetriever,
        FlakyRetriever,
        HangingRetriever,
    )
    from llama_retrieval_ext.testing.isolation_contract import IsolationContract
    from llama_retrieval_ext.testing.retriever_contract import (
        HostContract,
        RankingContract,
        ResultContract,
        RetrieverContract,
    )
    from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM


__all__ = [
    "BackendContract",
    "BothSearchesContract",
    "FakeAsyncRetriever",
    "FakeBackend",
    "FakeEmbedding",
    "FakeRetriever",
    "FixedRetriever",
    "FlakyRetriever",
    "HangingRetriever",
    "HostContract",
    "IsolationContract",
    "RankingContract",
    "ResultContract",
    "RetrieverContract",
    "ScriptedLLM",
    "sample_nodes",
]

# Hidden from type checkers, which would otherwise accept any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.testing.backend_contract": ("BackendContract", "BothSearchesContract"),
        "llama_retrieval_ext.testing.corpus": ("sample_nodes",),
        "llama_retrieval_ext.testing.fake_backend": ("FakeBackend",),
        "llama_retrieval_ext.testing.fakes": (
            "FakeAsyncRetriever",
            "FakeEmbedding",
            "FakeRetriever",
            "FixedRetriever",
            "FlakyRetriever",
            "HangingRetriever",
        ),
        "llama_retrieval_ext.testing.isolation_contract": ("IsolationContract",),
        "llama_retrieval_ext.testing.retriever_contract": (
            "HostContract",
            "RankingContract",
            "ResultContract",
            "RetrieverContract",
        ),
        "llama_retrieval_ext.testing.scripted_llm": ("ScriptedLLM",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
