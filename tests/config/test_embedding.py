"""Embedding models as data: installed integrations alone, and the model of the knowledge base."""

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from llama_retrieval_ext import KnowledgeBase
from llama_retrieval_ext.config import EmbeddingConfig, Registry, from_yaml, validate_yaml
from llama_retrieval_ext.embeddings.resolve import embed_model_name
from llama_retrieval_ext.errors import (
    ConfigFileError,
    ConfigurationError,
    MissingDependencyError,
    ModelMismatchError,
)

# An integration as they are: a module of LlamaIndex's namespace with one class.
INTEGRATION = """
from llama_retrieval_ext.testing.fakes import FakeEmbedding

class AcmeEmbedding(FakeEmbedding):
    api_base: str = "https://acme.example"
    api_key: str = ""

    def __init__(self, model_name="small", **settings):
        super().__init__(model_name=model_name, **settings)
        if self.api_key == "wrong":
            raise ValueError("bad key wrong")
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "llama_index" / "embeddings" / "acme"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(INTEGRATION)
    import llama_index  # noqa: PLC0415 - its search path, which installers extend

    monkeypatch.setattr(
        llama_index, "__path__", [*llama_index.__path__, str(tmp_path / "llama_index")]
    )
    yield_from = [name for name in sys.modules if name.startswith("llama_index.embeddings")]
    for name in yield_from:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("acme")
def test_any_installed_integration_is_found_by_its_name() -> None:
    data = {"provider": "acme", "model": "large", "base_url": "http://host", "dim": 8}
    config = EmbeddingConfig.model_validate(data)
    model = config.resolve()
    assert embed_model_name(model) == "AcmeEmbedding:large"
    assert vars(model)["api_base"] == "http://host"
    assert len(model.get_query_embedding("leave")) == 8


@pytest.mark.usefixtures("acme")
def test_keys_come_from_the_environment_and_are_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACME_KEY", "wrong")
    by_name = EmbeddingConfig.model_validate({"provider": "acme", "api_key": {"env": "ACME_KEY"}})
    direct = EmbeddingConfig.model_validate({"provider": "acme", "api_key": "wrong"})
    for config in (by_name, direct):
        assert "wrong" not in repr(config) + str(config.model_dump())
        with pytest.raises(ConfigurationError, match="refuses the settings api_key") as refused:
            config.resolve()
        assert "wrong" not in str(refused.value)
        assert refused.value.__cause__ is None
    monkeypatch.setenv("ACME_KEY", "right")
    assert vars(by_name.resolve())["api_key"] == "right"
    monkeypatch.delenv("ACME_KEY")
    with pytest.raises(ConfigurationError, match="'ACME_KEY' is not set"):
        by_name.resolve()


@pytest.mark.usefixtures("acme")
def test_another_model_than_the_knowledge_bases_is_an_error_that_names_both() -> None:
    made = EmbeddingConfig(provider="acme", model="large")
    with KnowledgeBase.open("embedded::memory:", embed_model=made.resolve()) as kb:
        registry = Registry().bind(kb)
        same = registry.get_retriever(
            "dense", embedding_config={"provider": "acme", "model": "large"}
        )
        assert vars(same)["embed_model"] is kb.embed_model
        elsewhere = registry.get_retriever(
            "hybrid",
            embedding_config={"provider": "acme", "model": "large", "base_url": "http://host"},
        )
        assert vars(elsewhere)["embed_model"].api_base == "http://host"
        for name in ("dense", "hybrid", "fusion", "llama_dense"):
            with pytest.raises(ModelMismatchError, match=r"'AcmeEmbedding:large'.*'AcmeEmbedding"):
                registry.get_retriever(
                    name, embedding_config={"provider": "acme", "model": "small"}
                )
        text = "version: 1\npipeline: {type: dense, embedding_config: {provider: local}}"
        assert validate_yaml(text, registry) == []
        with pytest.raises(ConfigFileError, match=r"line 2, .*AcmeEmbedding:large.*LocalEmbedding"):
            from_yaml(text, registry)


def test_an_embedding_provider_that_is_no_installed_integration_is_refused() -> None:
    with pytest.raises(MissingDependencyError, match="llama-index-embeddings-ollama"):
        EmbeddingConfig(provider="ollama", model="bge-m3").resolve()
    for provider in ("os.path", "../os", "OS", "", "openai; import os", "__main__"):
        with pytest.raises(ValidationError):
            EmbeddingConfig(provider=provider)
    with pytest.raises(ConfigurationError, match="without settings"):
        EmbeddingConfig(provider="local", base_url="http://host").resolve()


@pytest.mark.slow
def test_the_provider_fastembed_is_the_model_of_that_notation() -> None:
    model = EmbeddingConfig(provider="fastembed", model="baai/bge-small-zh-v1.5").resolve()
    assert repr(model) == "FastEmbedding('BAAI/bge-small-zh-v1.5')"
    with pytest.raises(ConfigurationError, match="is not the folder of a model"):
        EmbeddingConfig(provider="fastembed", model="./nowhere").resolve()
