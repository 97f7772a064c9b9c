import builtins
import sys
from types import ModuleType

import pytest
from llama_index.core import MockEmbedding
from llama_index.core.base.embeddings.base import BaseEmbedding

from llama_retrieval_ext.embeddings.resolve import embed_model_name, resolve_embed_model
from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
from tests.cases import cases

INTEGRATIONS = [
    ("huggingface", "HuggingFaceEmbedding", "model_name"),
    ("openai", "OpenAIEmbedding", "model"),
    ("ollama", "OllamaEmbedding", "model_name"),
]


def integration(argument: str) -> type[BaseEmbedding]:
    """A stand-in that knows the one argument that the real class knows."""

    class Fake(MockEmbedding):
        def __init__(self, **kwargs: str) -> None:
            super().__init__(embed_dim=2)
            self.model_name = kwargs.pop(argument)
            assert not kwargs

    return Fake


@cases(("key", "class_name", "argument"), INTEGRATIONS)
def test_a_name_reaches_the_integration(
    key: str, class_name: str, argument: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType(key)
    fake = integration(argument)
    setattr(module, class_name, fake)
    monkeypatch.setitem(sys.modules, f"llama_index.embeddings.{key}", module)
    model = resolve_embed_model(f"{key}:maker/model:latest")
    assert isinstance(model, fake)
    assert model.model_name == "maker/model:latest"


@cases("key", [key for key, _, _ in INTEGRATIONS])
def test_a_missing_integration_names_its_package(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, f"llama_index.embeddings.{key}", missing=f"llama_index.embeddings.{key}")
    with pytest.raises(MissingDependencyError, match=f"{key}:x") as caught:
        resolve_embed_model(f"{key}:x")
    assert caught.value.package == f"llama-index-embeddings-{key}"
    assert f"pip install '{caught.value.package}'" in str(caught.value)
    assert caught.value.extra == ""


def test_an_integration_that_misses_its_own_need_says_which(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hide(monkeypatch, "llama_index.embeddings.openai", missing="openai")
    with pytest.raises(ModuleNotFoundError, match="openai") as caught:
        resolve_embed_model("openai:x")
    assert not isinstance(caught.value, MissingDependencyError)


@cases("spec", ["", "  ", None, 3, object()])
def test_nothing_is_taken_by_default(spec: object) -> None:
    with pytest.raises(ConfigurationError, match=r"Accepted: local, fastembed:\./FOLDER"):
        resolve_embed_model(spec)  # type: ignore[arg-type]  # what callers without a checker pass


@cases(
    ("spec", "right"),
    [
        ("Local", "local"),
        ("local:bge", "local"),
        ("hugingface:BAAI/bge-m3", "huggingface:BAAI/bge-m3"),
        ("ollama", "ollama:NAME"),
    ],
)
def test_a_misspelt_one_gets_the_right_spelling(spec: str, right: str) -> None:
    with pytest.raises(ConfigurationError, match=r"Accepted: local, fastembed:\./FOLDER") as caught:
        resolve_embed_model(spec)
    assert repr(spec) in str(caught.value)
    assert f"did you mean {right!r}?" in str(caught.value)


def test_two_models_of_one_class_have_two_names() -> None:
    first, second = MockEmbedding(embed_dim=2), MockEmbedding(embed_dim=2)
    first.model_name, second.model_name = "small", "large"
    assert embed_model_name(first) == "MockEmbedding:small"
    assert embed_model_name(second) == "MockEmbedding:large"


@cases("name", ["unknown", ""])
def test_a_model_without_a_name_is_known_by_its_class(name: str) -> None:
    model = MockEmbedding(embed_dim=2)
    model.model_name = name
    assert embed_model_name(model) == "MockEmbedding"


def hide(monkeypatch: pytest.MonkeyPatch, module: str, *, missing: str) -> None:
    """Make importing ``module`` fail for want of ``missing``, whatever is installed here."""

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            if name == module:
                raise builtins.ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "llama_index.embeddings", namespace())
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])


def namespace() -> ModuleType:
    module = ModuleType("llama_index.embeddings")
    module.__path__ = []
    return module


@cases(
    "spec",
    ["sk-SECRET-0123456789", "opnai:sk-SECRET", "openai_key=SECRET", "x" * 20 + "SECRET" * 5],
)
def test_a_text_that_may_be_an_api_key_is_not_shown(spec: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        resolve_embed_model(spec)
    assert "SECRET" not in str(raised.value)
