"""Models of knowledge bases: what is recorded of one, and one whose query vectors are adapted."""

import json
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr

from llama_retrieval_ext.embeddings.local import FastEmbedding, LocalEmbedding
from llama_retrieval_ext.embeddings.resolve import (
    build_embed_model,
    embed_model_name,
    languages_of,
    provider_of,
    vector_share_of,
)
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import in_thread
from llama_retrieval_ext.execution.retrieval import embeds_async
from llama_retrieval_ext.formulas.query_adapter import Array, adapted
from llama_retrieval_ext.pipeline.searching import without_span

# Texts per call; the model itself divides them into its own batches.
_BATCH = 2048


def model_record(model: BaseEmbedding, notation: str = "") -> str:
    """Return how to build a model again, as JSON: provider, model and base URL, but never a key.

    Args:
        model: The model.
        notation: The notation that it was resolved from; empty for an object.

    Returns:
        The record. Empty if an object cannot be built from it, because of its class or of settings
        that may change its vectors.

    Examples:
        >>> from llama_retrieval_ext.embeddings.local import LocalEmbedding
        >>> model_record(LocalEmbedding())
        '{"provider": "local", "model": "wordllama-l2-supercat-256", "base_url": ""}'

    """
    if isinstance(model, RecordedEmbedding):
        return model.record
    if notation and not isinstance(model, FastEmbedding):  # its notation may be a relative path
        provider, _, name = notation.partition(":")
        base_url = ""
    else:
        provider_and_name = provider_of(model)
        if provider_and_name is None:
            return ""
        provider, name, base_url = provider_and_name
    parts = urlsplit(base_url)  # without user, password and options
    url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return json.dumps({"provider": provider, "model": name, "base_url": url})


class RecordedEmbedding(BaseEmbedding):
    """The embedding model of a knowledge base that was opened without one.

    The model is built when the first text is embedded, so that contents, deletion and keyword
    search need none.

    Attributes:
        recorded_name: The recorded name, such as ``OllamaEmbedding:bge-m3``.
        record: The output of `model_record`; empty if the model cannot be built.
        dimension: The dimension of its vectors; None if none is stored.
    """

    embed_batch_size: int = _BATCH
    recorded_name: str
    record: str = ""
    dimension: int | None = None
    _model: BaseEmbedding | None = PrivateAttr(default=None)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serialises this class."""
        return "RecordedEmbedding"

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of `LocalEmbedding`; empty for others, which are not built to be asked."""
        return LocalEmbedding.languages if self._is_local else ()

    @property
    def vector_share(self) -> float | None:
        """The share of `LocalEmbedding` in hybrid search; None for others."""
        return LocalEmbedding.vector_share if self._is_local else None

    @property
    def _is_local(self) -> bool:
        return self.recorded_name.partition(":")[0] == LocalEmbedding.__name__

    def model(self) -> BaseEmbedding:
        """Return the model, built at the first call.

        Raises:
            ConfigurationError: The record is not enough, or builds another model.
            MissingDependencyError: Its package is not installed.
        """
        if self._model is not None:
            return self._model
        if not self.record:
            raise ConfigurationError(
                f"the knowledge base was made with the embedding model {self.recorded_name!r}, "
                "which cannot be built from its record; open it with embed_model="
            )
        model = build_embed_model(**json.loads(self.record))
        if embed_model_name(model) != self.recorded_name:
            raise ConfigurationError(
                f"the knowledge base was made with the embedding model {self.recorded_name!r}, and "
                f"its record builds {embed_model_name(model)!r}; open it with embed_model="
            )
        self._model = model
        return model

    # The public methods are the model's: its spans, events and cache, once and under its name.

    @without_span
    def get_query_embedding(self, query: str) -> list[float]:
        """Return the embedding of a query."""
        return self.model().get_query_embedding(query)

    @without_span
    async def aget_query_embedding(self, query: str) -> list[float]:
        """Return the embedding of a query."""
        model = await in_thread(self.model) if self._model is None else self._model
        if embeds_async(model):
            return await model.aget_query_embedding(query)
        return await in_thread(lambda: model.get_query_embedding(query))

    @without_span
    def get_text_embedding(self, text: str) -> list[float]:
        """Return the embedding of a text."""
        return self.model().get_text_embedding(text)

    @without_span
    async def aget_text_embedding(self, text: str) -> list[float]:
        """Return the embedding of a text."""
        return await self.model().aget_text_embedding(text)

    @without_span
    def get_text_embedding_batch(
        self,
        texts: list[str],
        show_progress: bool = False,  # noqa: FBT001, FBT002 - LlamaIndex's signature
        **kwargs: object,
    ) -> list[list[float]]:
        """Return the embeddings of texts."""
        return self.model().get_text_embedding_batch(texts, show_progress, **kwargs)

    @without_span
    async def aget_text_embedding_batch(
        self,
        texts: list[str],
        show_progress: bool = False,  # noqa: FBT001, FBT002 - LlamaIndex's signature
        **kwargs: object,
    ) -> list[list[float]]:
        """Return the embeddings of texts."""
        return await self.model().aget_text_embedding_batch(texts, show_progress, **kwargs)

    _get_query_embedding = get_query_embedding
    _aget_query_embedding = aget_query_embedding
    _get_text_embedding = get_text_embedding

    def __getstate__(self) -> dict[Any, Any]:
        # Another process builds its own model.
        state = super().__getstate__()
        return {**state, "__pydantic_private__": {"_model": None}}


class AdaptedEmbedding(RecordedEmbedding):
    """A model under its own name; vectors of queries are adapted, those of texts are not."""

    _adapter: tuple[Array, Array] = PrivateAttr()

    def __init__(self, model: BaseEmbedding, adapter: tuple[Array, Array]) -> None:
        super().__init__(recorded_name=embed_model_name(model))
        self._model, self._adapter = model, adapter

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the model."""
        return languages_of(self.model())

    @property
    def vector_share(self) -> float | None:
        """The share that the model declares in hybrid search."""
        return vector_share_of(self.model())

    @without_span
    def get_query_embedding(self, query: str) -> list[float]:
        """Return the adapted embedding of a query."""
        return self._adapted(super().get_query_embedding(query))

    @without_span
    async def aget_query_embedding(self, query: str) -> list[float]:
        """Return the adapted embedding of a query."""
        return self._adapted(await super().aget_query_embedding(query))

    _get_query_embedding = get_query_embedding
    _aget_query_embedding = aget_query_embedding

    def _adapted(self, vector: list[float]) -> list[float]:
        queries, factor = self._adapter
        if np.shape(vector) != (queries.shape[1],):
            return vector
        values: list[float] = adapted(vector, queries, factor).tolist()
        return values
