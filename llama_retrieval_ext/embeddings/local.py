"""Embedding in this process: the static model of the package wordllama, and fastembed's models."""

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index_instrumentation import get_dispatcher
from numpy.typing import NDArray
from pydantic import Field, PrivateAttr

from llama_retrieval_ext.embeddings.fastembed_models import EmbeddingSource
from llama_retrieval_ext.errors import MissingDependencyError
from llama_retrieval_ext.execution.context import is_heard
from llama_retrieval_ext.execution.drivers import in_thread
from llama_retrieval_ext.pipeline.searching import without_span

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MODEL_NAME = "wordllama-l2-supercat-256"
# Characters of a text that takes about 0.1 ms.
_SHORT = 1000
# Prevents concurrent threads from loading the model twice.
_loading = Lock()


# It has the spans and events of every model.
_dispatcher = get_dispatcher(BaseEmbedding.__module__)


class QuietEmbedding(BaseEmbedding):
    """Base of models that embed queries without spans and events (0.15 ms) if nobody gets them."""

    @property
    def _is_plain(self) -> bool:
        settings = (self.callback_manager.handlers, self.embeddings_cache, self.rate_limiter)
        return not any(settings) and not is_heard(_dispatcher, spans=True)

    @without_span
    def get_query_embedding(self, query: str) -> list[float]:
        """Return the embedding of a query."""
        if self._is_plain:
            return self._get_query_embedding(query)
        return super().get_query_embedding(query)

    @without_span
    async def aget_query_embedding(self, query: str) -> list[float]:
        """Return the embedding of a query."""
        if self._is_plain:
            return await self._aget_query_embedding(query)
        return await super().aget_query_embedding(query)


class InProcessEmbedding(QuietEmbedding):
    """Base of models that compute in this process: async callers run them in a thread."""

    def __str__(self) -> str:
        return repr(self)  # pydantic's has every field of LlamaIndex's base class

    def _vectors(self, texts: list[str], *, query: bool = False) -> list[list[float]]:
        """Return the vectors of texts, or of queries."""
        raise NotImplementedError(type(self).__name__)

    @without_span
    def _get_query_embedding(self, query: str) -> list[float]:
        return self._vectors([query], query=True)[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._vectors([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._vectors(texts)

    @without_span
    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await in_thread(lambda: self._get_query_embedding(query))

    # The loop's pool, which is bounded: LlamaIndex starts all batches of texts at once.
    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


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


class LocalEmbedding(InProcessEmbedding):
    """Embedding by the mean of token vectors: 256 dimensions, no network, no torch.

    A vector has length 1, or is zero for a text without a token, such as the empty one. It depends
    on the text only, not on the batch or the order of the words. Long texts are not truncated:
    10,000 words give the mean over all of them. The cost is linear in the length of the text.

    Good for English prose and weak for code. It splits Chinese into characters, not words, and
    is far behind keyword search there: hybrid search weighs its vectors lower for questions in
    scripts other than those of its ``languages``. Measured Recall@10:

    ========================================  =====  ======  ======================
    questions over passages                   local  MiniLM  BM25
    ========================================  =====  ======  ======================
    MuSiQue, English, 100 over 1,890            .59     .70  .52 (unstemmed words)
    CosQA, English to Python, 200 over 6,267    .46     .81  .32 (unstemmed words)
    CMRC 2018, Chinese, 500 over 1,104          .74          1.00 (character pairs)
    ========================================  =====  ======  ======================

    Raises:
        MissingDependencyError: The extra ``local`` is not installed.

    Examples:
        >>> model = LocalEmbedding()
        >>> cat, kitten, tax = model.get_text_embedding_batch(["a cat", "a kitten", "income tax"])
        >>> print(len(cat), model.similarity(cat, kitten) > model.similarity(cat, tax))
        256 True

    """

    languages: ClassVar[tuple[str, ...]] = ("en",)
    # Share of vector search in hybrid search; measured on six sets, see config/README.md.
    vector_share: ClassVar[float] = 0.15
    # Recorded beside the vectors, so it cannot be changed.
    model_name: str = Field(default=_MODEL_NAME, pattern=f"^{_MODEL_NAME}$", frozen=True)
    embed_batch_size: int = Field(default=64, gt=0, le=2048, description="Texts per batch.")

    def model_post_init(self, context: Any, /) -> None:  # noqa: ANN401 (pydantic's signature)
        """Raise at construction, not at the first text, if the extra is missing."""
        super().model_post_init(context)
        _package_folder()

    def __repr__(self) -> str:
        # Pydantic's repr has every field of LlamaIndex's base class.
        default = type(self).model_fields["embed_batch_size"].default
        size = self.embed_batch_size
        return f"{type(self).__name__}({'' if size == default else f'embed_batch_size={size}'})"

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serialises this class."""
        return "LocalEmbedding"

    def _vectors(self, texts: list[str], *, query: bool = False) -> list[list[float]]:  # noqa: ARG002 - the same for both
        with _loading:
            tokenizer, token_vectors = _load()
        # The tokeniser rejects lone surrogates, which a badly decoded file may contain.
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        encodings = tokenizer.encode_batch(clean, add_special_tokens=False)
        sums = np.zeros((len(texts), token_vectors.shape[1]), dtype=np.float32)
        for row, encoding in enumerate(encodings):
            # Each distinct token once: the vocabulary bounds memory, however long the text is.
            ids, counts = np.unique(np.asarray(encoding.ids, dtype=np.intp), return_counts=True)
            sums[row] = counts.astype(np.float32) @ token_vectors[ids]
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        np.divide(sums, lengths, out=sums, where=lengths > 0)
        vectors: list[list[float]] = sums.tolist()
        return vectors

    def embed_static(self, texts: list[str]) -> list[list[float]]:
        """Return embeddings without events of LlamaIndex: microseconds a sentence."""
        return self._vectors(texts)

    @without_span
    async def _aget_query_embedding(self, query: str) -> list[float]:
        if len(query) <= _SHORT and _load.cache_info().currsize:
            return self._get_query_embedding(query)  # in less time than another thread takes
        return await super()._aget_query_embedding(query)


@cache
def _load() -> "tuple[Tokenizer, NDArray[np.float32]]":
    folder = _package_folder()
    try:
        with _logging_left_alone():
            package = import_module("wordllama")
        # Without cache_dir wordllama does not find its own tokeniser.
        model = package.WordLlama.load(cache_dir=folder, disable_download=True)
    except (ImportError, FileNotFoundError) as error:  # broken, or a release without the model
        raise MissingDependencyError("LocalEmbedding", "local") from error
    # Padding to the longest text would take gigabytes for a batch with one long document.
    model.tokenizer.no_padding()
    return model.tokenizer, model.embedding


@contextmanager
def _logging_left_alone() -> Generator[None]:
    # Importing wordllama calls logging.basicConfig(level=INFO), which only applications may call.
    # It changes nothing where there is a handler, here the one that Python has for want of others.
    root = logging.getLogger()
    handler = None if root.handlers else logging.lastResort or logging.NullHandler()
    if handler is not None:
        root.addHandler(handler)
    try:
        yield
    finally:
        if handler is not None:
            root.removeHandler(handler)


def _package_folder() -> Path:
    spec = find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise MissingDependencyError("LocalEmbedding", "local")
    return Path(spec.origin).parent
