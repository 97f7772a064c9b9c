"""Fakes with configurable failures: retrievers, an embedding model, a store."""

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from operator import mul
from threading import Event
from typing import TypeAlias

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from pydantic import Field, PrivateAttr

from llama_retrieval_ext.errors import DimensionMismatchError, UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.hits import ordered
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.stores.encoding.vectors import ScoreRange
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    EngineFeatures,
    HybridRankings,
    Search,
    fuse_candidates,
)
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch

Row: TypeAlias = (
    tuple[str, float | None]
    | tuple[str, float | None, str]
    | tuple[str, float | None, str, Mapping[str, object]]
)


class FakeRetriever(BaseRetriever):
    """LlamaIndex retriever with fixed hits and only a blocking call.

    Like some real retrievers it returns the same objects every time: a change to one of its hits
    changes its next answer.

    Args:
        rows: Node id, score, and perhaps text (the id, if not) and metadata of each hit.
        delay_s: Duration of an answer in seconds.
        error: Raised instead of an answer, after the delay.

    Examples:
        >>> retriever = FakeRetriever([("a", 0.9), ("b", 0.5, "text of b", {"lang": "en"})])
        >>> [hit.node_id for hit in retriever.retrieve("anything")]
        ['a', 'b']
        >>> retriever.calls[0].query_str
        'anything'

    """

    def __init__(
        self, rows: Iterable[Row] = (), *, delay_s: float = 0.0, error: BaseException | None = None
    ) -> None:
        super().__init__()
        self.hits = [_hit(row) for row in rows]
        self.delay_s = delay_s
        self.error = error
        self.calls: list[QueryBundle] = []

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls.append(query_bundle)
        if self.delay_s:  # even a sleep of 0 s yields the processor
            time.sleep(self.delay_s)
        return self._answer()

    def _answer(self) -> list[NodeWithScore]:
        if self.error is not None:
            raise self.error
        return list(self.hits)


class FakeAsyncRetriever(FakeRetriever):
    """`FakeRetriever` with a real async method."""

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls.append(query_bundle)
        await asyncio.sleep(self.delay_s)
        return self._answer()


class FlakyRetriever(FakeRetriever):
    """`FakeRetriever` that fails a few times, and then answers.

    Args:
        rows: As for `FakeRetriever`.
        failures: Number of first calls that fail.
        error: The error they raise; by default a ``ConnectionError``.
    """

    def __init__(
        self, rows: Iterable[Row] = (), *, failures: int = 1, error: Exception | None = None
    ) -> None:
        super().__init__(rows)
        self.failures = failures
        self._failure = error or ConnectionError("the source cannot be reached")

    def _answer(self) -> list[NodeWithScore]:
        if len(self.calls) <= self.failures:
            raise self._failure
        return super()._answer()


class HangingRetriever(FakeRetriever):
    """`FakeRetriever` that blocks until `release` is called.

    Args:
        rows: As for `FakeRetriever`.

    Attributes:
        asked: Set as soon as the retriever has been called.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        super().__init__(rows)
        self.asked = Event()
        self._released = Event()

    def release(self) -> None:
        """Release all answers, including those of later calls."""
        self._released.set()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls.append(query_bundle)
        self.asked.set()
        self._released.wait()
        return self._answer()


def _hit(row: Row) -> NodeWithScore:
    node_id, score = row[0], row[1]
    text = row[2] if len(row) > 2 else node_id
    metadata = dict(row[3]) if len(row) > 3 else {}
    return NodeWithScore(node=TextNode(id_=node_id, text=text, metadata=metadata), score=score)


# Runs of CJK ideographs, and words of other characters.
_RUNS = re.compile(r"[\u3400-\u9fff]+|[^\W\u3400-\u9fff]+")


class FakeEmbedding(BaseEmbedding):
    """Embedding model that hashes words into a vector: texts with common words are near.

    Each word counts in one of ``dim`` places; Chinese counts by pairs of characters. Vectors have
    length 1 and no negative entry: cosines are in ``[0, 1]``, and 0 for texts without shared words,
    except for hash collisions.

    Args:
        dim: Length of the vectors.
        seed: Another seed is another model, with incompatible vectors.
        delay_s: Duration of each call in seconds.
        fail: If set, each call raises it.

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
        """Return LlamaIndex's name of the class in serialised form."""
        return "FakeEmbedding"

    @property
    def calls(self) -> list[str]:
        """All embedded texts, queries and documents, oldest first."""
        return self._calls

    def _embed(self, text: str) -> list[float]:
        self._calls.append(text)
        if self.fail is not None:
            raise self.fail
        vector = [0.0] * self.dim
        for word, count in Counter(words_of(text)).items():
            digest = blake2b(f"{self.seed}:{word}".encode(), digest_size=8).digest()
            vector[int.from_bytes(digest, "big") % self.dim] += count
        length = math.hypot(*vector)
        return [value / length for value in vector]

    def _get_text_embedding(self, text: str) -> list[float]:
        if self.delay_s:  # even a sleep of 0 s yields the processor
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
    """Return the words of a text in lower case, Chinese as character pairs; never empty."""
    words: list[str] = []
    for run in _RUNS.findall(text.lower()):
        if "\u3400" <= run[0] <= "\u9fff" and len(run) > 1:
            words += [run[index : index + 2] for index in range(len(run) - 1)]
        else:
            words.append(run)
    return words or [""]  # a text without words must not become the zero vector


class FixedRetriever(Retriever):
    """Retriever with fixed rows, limited by scope, filters and ``top_k``.

    Args:
        rows: Node id, score, and perhaps text and metadata of each hit; as for `FakeRetriever`.
        top_k: Number of hits to return if the query does not set it.
        name: Name in traces and ``Hit.source``, and the representation.
        delay_s: Duration of an answer in seconds, without blocking the event loop.
        error: Raised instead of an answer, after the delay.

    Attributes:
        calls: All received queries, oldest first.

    Examples:
        >>> retriever = FixedRetriever([("a", 0.9), ("b", 0.5)], name="fixed")
        >>> [hit.node_id for hit in retriever.search("anything", top_k=1).hits]
        ['a']

    """

    def __init__(
        self,
        rows: Iterable[Row] = (),
        *,
        top_k: int = 10,
        name: str = "fixed",
        delay_s: float = 0.0,
        error: Exception | None = None,
    ) -> None:
        super().__init__(top_k=top_k, name=name)
        self.hits = FakeRetriever(rows).hits
        self.delay_s = delay_s
        self.error = error
        self.calls: list[Query] = []

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Answer as scripted, after the delay."""
        self.calls.append(query)
        if self.delay_s:
            yield Call(lambda: time.sleep(self.delay_s), lambda: asyncio.sleep(self.delay_s))
        if self.error is not None:
            raise self.error
        condition = query.condition
        return ordered(
            Hit(node=hit.node, score=hit.score, source=self.name)
            for hit in self.hits
            if matches(condition, hit.node.metadata)
        )[: query.top_k]

    def __repr__(self) -> str:
        return self.name


EVERYTHING = EngineFeatures(
    dense=ScoreRange("cosine", -1.0, 1.0), keyword=ScoreRange("bm25", low=0.0), one_round_trip=True
)


class FakeBackend:
    """Backend over a list of nodes: dense by cosine, keyword by the number of shared words.

    Override `shows` to simulate a backend whose filters leak.

    Args:
        nodes: The nodes, with embeddings of length 1 for dense search.
        features: The supported features; others are refused.
        drop_violations: As in `Backend`.

    Examples:
        >>> backend = FakeBackend([TextNode(id_="n1", text="annual leave")])
        >>> found = backend.keyword("leave days", Search(top_k=5)).function()
        >>> [(each.node_id, each.score) for each in found]
        [('n1', 1.0)]

    """

    engine = "fake"

    def __init__(
        self,
        nodes: Sequence[TextNode],
        *,
        features: EngineFeatures = EVERYTHING,
        drop_violations: bool = False,
    ) -> None:
        self.nodes = list(nodes)
        self._features = features
        self.drop_violations = drop_violations
        self.store: BasePydanticVectorStore = SimpleVectorStore()  # unused

    @property
    def features(self) -> EngineFeatures:
        """The configured features."""
        return self._features

    def describe(self) -> Mapping[str, object]:
        """Return its name and size."""
        return {"engine": self.engine, "nodes": len(self.nodes)}

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Return nodes by cosine."""
        if self.features.dense is None:
            raise UnsupportedModeError("this fake has no vector search")
        return Call(lambda: self._best(search, lambda node: _cosine(embedding, node)))

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Return nodes by the number of words shared with the text."""
        if self.features.keyword is None:
            raise UnsupportedModeError("this fake has no keyword search")
        words = Counter(word for word in words_of(text) if word)
        return Call(lambda: self._best(search, lambda node: _shared(words, node)))

    def hybrid(
        self, embedding: Sequence[float], text: str, search: Search, *, nodes_last: bool
    ) -> Call[HybridRankings]:
        """Return both rankings, with their nodes."""
        del nodes_last
        dense, keyword = self.dense(embedding, search), self.keyword(text, search)
        return Call(lambda: HybridRankings.of(dense.function(), keyword.function()))

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        """Return both rankings, fused by the fusion's formula."""
        candidates = replace(search, top_k=how.candidates)
        dense, keyword = self.dense(embedding, candidates), self.keyword(text, candidates)
        fused = partial(fuse_candidates, fusion=how.fusion, weights=how.weights, top_k=search.top_k)
        return Call(lambda: fused(dense.function(), keyword.function()))

    def shows(self, node: TextNode, condition: Condition | None) -> bool:
        """Return whether a search with this condition may find the node."""
        return matches(condition, node.metadata)

    def _best(self, search: Search, score: Callable[[TextNode], float | None]) -> list[Candidate]:
        visible = [node for node in self.nodes if self.shows(node, search.condition)]
        scored = [(node, score(node)) for node in visible]
        candidates = [Candidate(node, value) for node, value in scored if value is not None]
        return sorted(candidates, key=lambda candidate: (-candidate.score, candidate.node.node_id))[
            : search.top_k
        ]


def _cosine(embedding: Sequence[float], node: TextNode) -> float:
    stored = node.get_embedding()
    if len(embedding) != len(stored):
        raise DimensionMismatchError(f"got {len(embedding)} numbers, the store has {len(stored)}")
    return math.fsum(map(mul, embedding, stored))


def _shared(words: Counter[str], node: TextNode) -> float | None:
    shared = (words & Counter(words_of(node.text))).total()
    return float(shared) if shared else None
