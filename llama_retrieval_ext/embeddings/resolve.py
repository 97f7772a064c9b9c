"""Parses the notation for embedding models, and returns the name that a store records."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import NamedTuple

from llama_index.core.base.embeddings.base import BaseEmbedding

from llama_retrieval_ext.embeddings.local import FastEmbedding, LocalEmbedding
from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError

_LOCAL = "local"
_FASTEMBED = "fastembed"
# Attributes in which models declare the dimension of their vectors.
_DIMENSIONS = ("dim", "embed_dim", "dimensions", "dimension", "embed_dimension")


class _Integration(NamedTuple):
    class_name: str
    model: str  # its argument for the model's name
    base_url: str = ""  # its argument and attribute for the server; empty for none


# Keys name the package, llama-index-embeddings-KEY, and its module, llama_index.embeddings.KEY.
_INTEGRATIONS = {
    "huggingface": _Integration("HuggingFaceEmbedding", "model_name"),
    "openai": _Integration("OpenAIEmbedding", "model", "api_base"),
    "ollama": _Integration("OllamaEmbedding", "model_name", "base_url"),
}
# Settings that do not change the vectors.
_NEUTRAL = {
    *("model_name", "embed_batch_size", "callback_manager", "num_workers", "embeddings_cache"),
    *("rate_limiter", "cache_dir", "cache_folder", "threads", "show_progress_bar", "api_key"),
    *("api_version", "default_headers", "max_retries", "timeout", "reuse_client", "keep_alive"),
    "client_kwargs",
}
# What looks like an API key: a known beginning, an option of a URL, or many characters.
_KEY = re.compile(r"(?i)\b(?:sk|pk|hf|gsk|xai|key|api|token)[-_]|[?@=]|[\w-]{40}")
_PROVIDERS = (_FASTEMBED, *_INTEGRATIONS)
_ACCEPTED = (_LOCAL, f"{_FASTEMBED}:./FOLDER", *(f"{key}:NAME" for key in _PROVIDERS))


def resolve_embed_model(spec: str | BaseEmbedding) -> BaseEmbedding:
    """Return the embedding model that a specification names; there is no default.

    Creating a model may download it or require an API key, depending on the integration.

    Args:
        spec: A model, which is returned unchanged, or ``local``, ``fastembed:NAME``,
            ``fastembed:./FOLDER``, ``huggingface:NAME``, ``openai:NAME``, ``ollama:NAME``. A name
            may hold colons.

    Returns:
        The model.

    Raises:
        ConfigurationError: The specification is empty or unknown.
        MissingDependencyError: The integration, or the extra ``models``, is not installed.

    Examples:
        >>> resolve_embed_model("local").model_name
        'wordllama-l2-supercat-256'
        >>> resolve_embed_model("olama:bge-m3")
        Traceback (most recent call last):
            ...
        llama_retrieval_ext.errors.ConfigurationError: unknown embedding model 'olama:bge-m3'; \
did you mean 'ollama:bge-m3'? Accepted: local, fastembed:./FOLDER, fastembed:NAME, \
huggingface:NAME, openai:NAME, ollama:NAME, or a LlamaIndex embedding object

    """
    if isinstance(spec, BaseEmbedding):
        return spec
    # Untyped callers may pass None or another library's embedding.
    if not isinstance(spec, str) or not spec.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"an embedding model is needed, got {spec!r}. {_accepted()}")
    if spec == _LOCAL:
        return LocalEmbedding()
    key, _, name = spec.partition(":")
    if key not in _PROVIDERS or not name.strip():
        raise ConfigurationError(
            f"unknown embedding model {_shown(spec)}{_suggestion(key, _shown_name(name))} "
            f"{_accepted()}"
        )
    return build_embed_model(key, name)


def embed_model_name(model: BaseEmbedding) -> str:
    """Return the name under which a store records its embedding model.

    It is ``ClassName:model_name``, or only the class name if the model has no name (LlamaIndex's
    default is ``unknown``). Two unnamed models of one class cannot be distinguished.
    """
    recorded: str = getattr(model, "recorded_name", "")  # of a `RecordedEmbedding`
    if recorded:
        return recorded
    class_name = type(model).__name__
    named = model.model_name and model.model_name != "unknown"
    return f"{class_name}:{model.model_name}" if named else class_name


def embed_model_dimension(model: BaseEmbedding) -> int | None:
    """Return the dimension that a model declares for its vectors; None if it declares none."""
    for name in _DIMENSIONS:
        dimension = getattr(model, name, None)
        if isinstance(dimension, int) and not isinstance(dimension, bool) and dimension > 0:
            return dimension
    return None


def languages_of(model: BaseEmbedding | None) -> tuple[str, ...]:
    """Return the languages that a model declares to know, by ISO 639-1 codes; empty if unknown."""
    declared: Sequence[str] = getattr(model, "languages", ())
    return tuple(declared)


def vector_share_of(model: BaseEmbedding | None) -> float:
    """Return the share of vector search in hybrid search, in ``[0, 1]``, that a model declares.

    A half if it declares none. Static models, such as `LocalEmbedding`, are behind keyword search
    nearly everywhere and declare less.
    """
    declared: float | None = getattr(model, "vector_share", None)
    return 0.5 if declared is None else declared


def build_embed_model(provider: str, model: str, base_url: str = "") -> BaseEmbedding:
    """Return the model of a provider; without a base URL on the default server.

    Raises:
        MissingDependencyError: The provider's integration is not installed.
    """
    if provider == _LOCAL:
        return LocalEmbedding()
    if provider == _FASTEMBED:
        return FastEmbedding(model)
    integration = _INTEGRATIONS[provider]
    module = f"llama_index.embeddings.{provider}"
    try:
        model_class = getattr(import_module(module), integration.class_name)
    except ModuleNotFoundError as error:
        if not module.startswith(error.name or ""):  # installed, but one of its dependencies is not
            raise
        raise MissingDependencyError(
            f"the embedding model '{provider}:{model}'",
            package=f"llama-index-embeddings-{provider}",
        ) from error
    url = {integration.base_url: base_url} if base_url else {}
    built: BaseEmbedding = model_class(**{integration.model: model}, **url)
    return built


def provider_of(model: BaseEmbedding) -> tuple[str, str, str] | None:
    """Return provider, model and base URL with which `build_embed_model` builds a model again.

    None if they are not enough: another class, or a setting that may change its vectors.
    """
    if type(model) is LocalEmbedding:
        return _LOCAL, model.model_name, ""
    if type(model) is FastEmbedding:
        return _FASTEMBED, model.location, ""
    provider = type(model).__module__.removeprefix("llama_index.embeddings.").partition(".")[0]
    integration = _INTEGRATIONS.get(provider)
    if integration is None or type(model).__name__ != integration.class_name:
        return None
    for name, field in type(model).model_fields.items():
        is_neutral = name in _NEUTRAL or name == integration.base_url
        if not is_neutral and getattr(model, name) != field.get_default(call_default_factory=True):
            return None
    return provider, model.model_name, str(getattr(model, integration.base_url, None) or "")


def _accepted() -> str:
    return f"Accepted: {', '.join(_ACCEPTED)}, or a LlamaIndex embedding object"


def _shown_name(name: str) -> str:
    return "NAME" if _KEY.search(name) else name


def _shown(spec: str) -> str:
    """Return a specification for a message; without what may be an API key."""
    if not _KEY.search(spec):
        return repr(spec)
    key, colon, _ = spec.partition(":")
    return f"{key}:..." if colon and not _KEY.search(key) else "(not shown: it may be an API key)"


def _suggestion(key: str, name: str) -> str:
    near = get_close_matches(key.strip().lower(), (_LOCAL, *_PROVIDERS), n=1)
    if not near:
        return "."
    right = near[0] if near[0] == _LOCAL else f"{near[0]}:{name.strip() or 'NAME'}"
    return f"; did you mean {right!r}?"
