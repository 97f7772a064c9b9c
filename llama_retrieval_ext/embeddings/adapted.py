"""`AdaptedEmbedding`: an embedding model whose query vectors a learned adapter moves."""

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr

from llama_retrieval_ext.embeddings.recorded import RecordedEmbedding
from llama_retrieval_ext.embeddings.resolve import embed_model_name, languages_of, vector_share_of
from llama_retrieval_ext.formulas.query_adapter import Array, adapted
from llama_retrieval_ext.pipeline.searching import without_span


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
