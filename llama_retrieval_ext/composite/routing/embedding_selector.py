"""Routing by how near a query is to the descriptions of the routes."""

from collections.abc import Sequence
from threading import Lock

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from numpy.typing import NDArray

from llama_retrieval_ext.arguments import is_number, of_type
from llama_retrieval_ext.composite.routing.selector import Choice, Selection, Selector
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.execution.embedding import embed_text
from llama_retrieval_ext.query import Query


class EmbeddingSelector(Selector):
    """Takes the route whose description is nearest to the query, and those nearly as near.

    Descriptions are embedded once, in one batch. Abstains when even the nearest is not near.

    Args:
        embed_model: Embeds queries and descriptions.
        margin: Routes within this cosine of the nearest are taken too; 0 takes the nearest alone.
        min_similarity: Cosine below which a route is not taken, in ``[-1, 1]``.

    Raises:
        ConfigurationError: ``margin`` is negative or ``min_similarity`` no cosine.
    """

    def __init__(
        self, embed_model: BaseEmbedding, *, margin: float = 0.0, min_similarity: float = 0.0
    ) -> None:
        numbers = is_number(margin) and is_number(min_similarity)
        if not numbers or margin < 0 or not -1 <= min_similarity <= 1:
            raise ConfigurationError(
                "margin must be 0 or more and min_similarity between -1 and 1, "
                f"got {margin!r} and {min_similarity!r}"
            )
        self.embed_model = of_type(embed_model, BaseEmbedding, "embed_model")
        self.margin = margin
        self.min_similarity = min_similarity
        self._known: dict[str, NDArray[np.float64]] = {}
        self._lock = Lock()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=Lock())

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """The nearest routes; their confidence is the cosine, brought to ``(0, 1]``."""
        if not query.query_str.strip():
            return []
        described = yield from self._described(choices)
        # Of the text: an embedding that the query brings is of the routes' model, not of this one.
        embedding = yield from embed_text(query.query_str, self.embed_model)
        asked = _unit(np.asarray(embedding, dtype=np.float64))
        cosines: list[float] = np.clip(described @ asked, -1.0, 1.0).tolist()
        if not asked.any() or not np.isfinite(cosines).all():
            return []  # the model knows no word of the query
        least = max(self.min_similarity, max(cosines) - self.margin)
        order = sorted(range(len(choices)), key=lambda i: (-cosines[i], choices[i].name))
        near = [i for i in order if cosines[i] >= least]
        return [
            Selection(choices[i].name, max((1 + cosines[i]) / 2, 1e-9), f"{cosines[i]:.2f}")
            for i in (near if self.margin > 0 else near[:1])
        ]

    def _described(self, choices: Sequence[Choice]) -> Plan[NDArray[np.float64]]:
        model = self.embed_model
        texts = [choice.description for choice in choices]
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            vectors: list[list[float]] = yield Call(
                lambda: model.get_text_embedding_batch(new),
                lambda: model.aget_text_embedding_batch(new),
            )
            with self._lock:
                for text, vector in zip(new, vectors, strict=True):
                    self._known[text] = _unit(np.asarray(vector, dtype=np.float64))
        return np.stack([self._known[text] for text in texts])

    def __repr__(self) -> str:
        return f"EmbeddingSelector(margin={self.margin}, min_similarity={self.min_similarity})"


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector
