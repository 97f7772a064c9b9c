"""`EmbeddingConfig`: an embedding model of any installed LlamaIndex integration as data."""

import inspect
import os
import re
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Annotated, Any, Final, TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from llama_retrieval_ext.embeddings.local import FastEmbedding, LocalEmbedding
from llama_retrieval_ext.embeddings.resolve import embed_model_name
from llama_retrieval_ext.errors import (
    ConfigurationError,
    MissingDependencyError,
    ModelMismatchError,
)

_LOCAL: Final = "local"
_PACKAGE: Final = "llama_index.embeddings"
_PROVIDER: Final = r"^[a-z][a-z0-9_]{0,63}$"
# Common spellings, and the module of the integration.
_MODULES: Final[Mapping[str, str]] = {
    "openai_compatible": "openai_like",
    "azure": "azure_openai",
    "hf": "huggingface",
    "sentence_transformers": "huggingface",
}
# Names of integrations for the model's name and the server's address.
_MODEL_NAMES: Final = ("model_name", "model", "model_id", "deployment_name")
_URL_NAMES: Final = ("base_url", "api_base", "endpoint", "url", "azure_endpoint")


class EnvironmentReference(BaseModel):
    """``{env: NAME}``: the value of an environment variable, read on use.

    Attributes:
        env: The name of the variable.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    env: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)

    def value(self) -> str:
        """Return the value of the variable."""
        content = os.environ.get(self.env)
        if not content:
            raise ConfigurationError(f"the environment variable {self.env!r} is not set")
        return content


def resolved(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return settings with references replaced by values of environment variables."""
    if isinstance(value, EnvironmentReference):
        return value.value()
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Mapping):
        if list(value) == ["env"]:
            return EnvironmentReference.model_validate(dict(value)).value()
        return {key: resolved(setting) for key, setting in value.items()}
    return [resolved(item) for item in value] if isinstance(value, list) else value


# A text is a secret, which no representation shows.
_Secret: TypeAlias = Annotated[
    EnvironmentReference | SecretStr | None,
    BeforeValidator(lambda value: SecretStr(value) if isinstance(value, str) else value),
]


class EmbeddingConfig(BaseModel):
    """Embedding model as data; additional fields are passed to the integration.

    Attributes:
        provider: ``local``, ``fastembed``, or the name of a LlamaIndex integration that is
            installed: ``openai``, ``openai_like`` for servers compatible with it, ``ollama``, …
        model: Name of the model; None for the integration's default.
        base_url: Address of the server, if any.
        api_key: ``{env: NAME}``; in Python also the key itself, which no representation shows.

    Examples:
        >>> config = EmbeddingConfig(provider="openai_like", model="bge-m3", api_key="sk-1")
        >>> "sk-1" in repr(config)
        False
        >>> EmbeddingConfig(provider="local").resolve().model_name
        'wordllama-l2-supercat-256'

    """

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)
    provider: str = Field(pattern=_PROVIDER)
    model: str | EnvironmentReference | None = None
    base_url: str | EnvironmentReference | None = None
    api_key: _Secret = None

    def resolve(self) -> BaseEmbedding:
        """Return the embedding model.

        Raises:
            ConfigurationError: The integration has no embedding class, or refuses the settings.
            MissingDependencyError: The integration is not installed.
        """
        if self.provider == _LOCAL:
            self._check_local()
            return LocalEmbedding()
        if self.provider == "fastembed" and set(self._settings()) == {"model"}:
            return FastEmbedding(resolved(self.model))
        kind = _embedding_class(_integration(self.provider), self.provider)
        arguments = self._arguments(kind)
        try:
            return kind(**arguments)
        except Exception as error:  # noqa: BLE001 - whatever the integration raises
            # The integration's own message may contain its settings, including the key.
            raise ConfigurationError(
                f"{kind.__name__} refuses the settings {', '.join(sorted(self._settings()))}: "
                f"{type(error).__name__}"
            ) from None

    def matching(self, model: BaseEmbedding, where: str) -> BaseEmbedding:
        """Return the query model for a knowledge base; raise if it does not match.

        Args:
            model: The embedding model of the knowledge base.
            where: Name of the knowledge base in messages.

        Returns:
            ``model`` itself, or, if there are settings besides provider and model, the model made
            from the settings.

        Raises:
            ModelMismatchError: They are different models; the message names both.
            ConfigurationError: As for `resolve`.
        """
        named = self.resolve()
        expected, actual = embed_model_name(model), embed_model_name(named)
        if expected != actual:
            raise ModelMismatchError(
                f"{where} was made with the embedding model {expected!r}, and embedding_config "
                f"names {actual!r}; leave embedding_config out to use the first"
            )
        return named if set(self._settings()) - {"model"} else model

    def _settings(self) -> dict[str, Any]:
        named = {"model": self.model, "base_url": self.base_url, "api_key": self.api_key}
        settings = {key: setting for key, setting in named.items() if setting is not None}
        return {**settings, **(self.model_extra or {})}

    def _arguments(self, kind: type[BaseEmbedding]) -> dict[str, Any]:
        settings = resolved(self._settings())
        parameters = {*inspect.signature(kind.__init__).parameters, *kind.model_fields}
        for name, spellings in (("model", _MODEL_NAMES), ("base_url", _URL_NAMES)):
            if name in settings:
                spelling = next(
                    (spelling for spelling in spellings if spelling in parameters), name
                )
                settings[spelling] = settings.pop(name)
        return dict(settings)

    def _check_local(self) -> None:
        others = set(self._settings()) - {"model"}
        is_ours = self.model in {None, LocalEmbedding().model_name}
        if others or not is_ours:
            raise ConfigurationError(
                "the provider 'local' is one model without settings; write {provider: local}, got "
                f"{', '.join(sorted(self._settings()))}"
            )


def _integration(provider: str) -> ModuleType:
    """Return the module of an integration; only LlamaIndex modules are allowed."""
    name = _MODULES.get(provider, provider)
    if not re.match(_PROVIDER, name):
        raise ConfigurationError(f"{provider!r} is no name of an integration")
    module = f"{_PACKAGE}.{name}"
    try:
        if find_spec(_PACKAGE) is not None and find_spec(module) is not None:
            return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"the embedding provider {provider!r}", package=str(error.name)
        ) from error
    package = f"llama-index-embeddings-{name.replace('_', '-')}"
    raise MissingDependencyError(f"the embedding provider {provider!r}", package=package)


def _embedding_class(module: ModuleType, provider: str) -> type[BaseEmbedding]:
    """Return the class of an integration: the one of its name, or its only one for texts."""
    classes = {
        value: value.__name__
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, BaseEmbedding)
        and value.__module__.startswith(module.__name__)
    }
    expected = f"{_MODULES.get(provider, provider)}embedding".replace("_", "")
    text_only = [kind for kind, name in classes.items() if "MultiModal" not in name] or [*classes]
    exact = [kind for kind in text_only if classes[kind].lower() == expected]
    candidates = exact or text_only
    if len(candidates) != 1:
        names = ", ".join(classes[kind] for kind in candidates) or "none"
        raise ConfigurationError(
            f"the integration {provider!r} must have one embedding class, it has {names}; pass a "
            "model of your own with embed_model="
        )
    return candidates[0]
