"""`FastEmbedding`: an embedding model of fastembed, on ONNX Runtime without torch."""

from typing import Any

from pydantic import PrivateAttr

from llama_retrieval_ext.embeddings.local import InProcessEmbedding
from llama_retrieval_ext.fastembed_models import EmbeddingSource


class FastEmbedding(InProcessEmbedding):
    """Embedding by a model that fastembed runs: ``fastembed:NAME`` or ``fastembed:./FOLDER``.

    A vector has length 1. Texts longer than the model's window are truncated, as models of this
    kind do: cut documents accordingly. The model is loaded, or downloaded, at the first text. It
    uses all cores that the process may use.

    Attributes:
        location: Its name at fastembed, or the absolute path of its folder.
        dimension: The dimension of its vectors.

    Raises:
        ConfigurationError: There is no such model, or the folder lacks a file or a setting.
        MissingDependencyError: The extra ``models`` is not installed.
    """

    embed_batch_size: int = 256  # sorted by length, and divided again
    location: str
    dimension: int = 0
    _source: EmbeddingSource = PrivateAttr()

    def __init__(self, location: str, **settings: Any) -> None:  # noqa: ANN401 - LlamaIndex's fields
        source = EmbeddingSource.of(location)
        settings |= {"model_name": source.name, "dimension": source.dimension}
        super().__init__(location=source.location, **settings)  # type: ignore[call-arg]
        self._source = source

    def __repr__(self) -> str:
        # Pydantic's repr has every field of LlamaIndex's base class.
        return f"{type(self).__name__}({self.location!r})"

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serialises this class."""
        return "FastEmbedding"

    def _vectors(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        return self._source.embed(texts, query=query)
