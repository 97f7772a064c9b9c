"""An embedding model for tests: no network, no weights, and cosine that means something."""

import asyncio
import math
import re
import time
from collections import Counter
from hashlib import blake2b

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import Field, PrivateAttr

# Runs of CJK ideographs, and words of everything else.
_RUNS = re.compile(r"[\u3400-\u9fff]+|[^\W\u3400-\u9fff]+")


class FakeEmbedding(BaseEmbedding):
    """Hashes the words of a text into a vector, so that texts with common words are near.

    Each word counts in one of ``dim`` places; Chinese counts by pairs of characters. Vectors have
    length 1 and no negative entry: cosines lie in ``[0, 1]``, up to collisions 0 where no word is
    shared.

    Args:
        dim: Length of the vectors.
        seed: Another seed is another model: its vectors mean nothing to the first.
        delay_s: Seconds each call takes.
        fail: Raised by each call, while it is set.

    Examples:
        >>> model = FakeEmbedding(dim=4)
        >>> model.get_text_embedding("leave") == model.get_query_embedding("Leave!")
        True
        >>> model.calls
        ['leave', 'Leave!']

    """

    dim: int = 128
    seed: int = 0
    delay_s: float = 0.0
    fail: Exception | None = Field(default=None, exclude=True)
    _calls: list[str] = PrivateAttr(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of the class in serialised form."""
        return "FakeEmbedding"

    @property
    def calls(self) -> list[str]:
        """Every text it was asked to embed, queries and documents, oldest first."""
        return self._calls

    def _embed(self, text: str) -> list[float]:
        self._calls.append(text)
        if self.fail is not None:
            raise self.fail
        vector = [0.0] * self.dim
        for word, count in Counter(words_of(text)).items():
            vector[self._place(word)] += count
        length = math.hypot(*vector)
        return [value / length for value in vector]

    def _place(self, word: str) -> int:
        digest = blake2b(f"{self.seed}:{word}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.dim

    def _get_text_embedding(self, text: str) -> list[float]:
        if self.delay_s:  # even a sleep of 0 s hands the processor to somebody else
            time.sleep(self.delay_s)
        return self._embed(text)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        await asyncio.sleep(self.delay_s)
        return self._embed(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await self._aget_text_embedding(query)


def words_of(text: str) -> list[str]:
    """The words of a text in lower case; Chinese in pairs of characters; never empty."""
    words: list[str] = []
    for run in _RUNS.findall(text.lower()):
        if "\u3400" <= run[0] <= "\u9fff" and len(run) > 1:
            words += [run[place : place + 2] for place in range(len(run) - 1)]
        else:
            words.append(run)
    return words or [""]  # a text without words is a vector too, and not the zero vector
