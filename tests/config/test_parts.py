"""What retrievers by name are made from."""

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext import KnowledgeBase
from llama_retrieval_ext.config import Registry, RegistryParts
from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError


def test_a_part_that_was_not_bound_is_named() -> None:
    registry = Registry()
    for name, words in (("dense", "registry.bind"), ("basic", "registry.bind")):
        with pytest.raises(ConfigurationError, match=words):
            registry.get_retriever(name)
    with pytest.raises(ConfigurationError, match="'retriever' or 'preset'"):
        registry.get("retrievers", "dense")  # type: ignore[arg-type]


def test_an_error_of_a_registered_function_keeps_its_cause(registry: Registry) -> None:
    @registry.register_retriever("broken")
    def broken(parts: RegistryParts) -> BaseRetriever:
        del parts
        raise ConfigurationError("there is no such model") from OSError("404")

    with pytest.raises(ConfigurationError, match="no such model") as raised:
        registry.get_retriever("broken")
    assert isinstance(raised.value.__cause__, OSError)


def test_a_cross_encoder_that_is_not_installed_is_named(registry: Registry) -> None:
    with pytest.raises(MissingDependencyError, match="sentence-transformers"):
        registry.get_retriever("rerank", rerank_model="cross-encoder/ms-marco-MiniLM-L-6-v2")
    with pytest.raises(ConfigurationError, match="no such folder"):  # not of that package
        registry.get_retriever("rerank", rerank_model="fastembed:./no such folder")


def test_filters_of_a_knowledge_bases_retriever_reach_retrievers_inside(kb: KnowledgeBase) -> None:
    only = MetadataFilters(filters=[MetadataFilter(key="tenant_id", value="globex")])
    for name in ("fusion", "rerank", "llama_bm25", "fallback", "basic", "router"):
        made = kb.retriever(name, filters=only)
        assert {hit.text[:6] for hit in made.retrieve("annual leave")} == {"globex"}, name
