"""Plain LlamaIndex retrievers that know nothing of this package, and misbehave on demand."""

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
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
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, ordered
from llama_retrieval_ext.stores.encoding.vectors import ScoreRange
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    Choose,
    EngineFeatures,
    EngineQuery,
    KeywordQuery,
    Search,
    VectorQuery,
    chosen_candidates,
    fuse_legs,
)
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch

Row: TypeAlias = (
    tuple[str, float | None]
    | tuple[str, float | None, str]
    | tuple[str, float | None, str, Mapping[str, object]]
)


class FakeRetriever(BaseRetriever):
    """Answers every query with the same hits, by a blocking call only.

    Like some retrievers in the wild it hands out the very same objects every time: whoever changes
    one of its hits changes its next answer.

    Args:
        rows: Node id, score, and perhaps text (the id, if not) and metadata of each hit.
        delay_s: Seconds an answer takes.
        error: Raised instead of an answer, after the delay.

    Examples:
        >>> retriever = FakeRetriever([("a", 0.9), ("b", 0.5, "text of b", {"lang": "en"})])
        >>> [hit.node_id for hit in retriever.retrieve("anything")]
        ['a', 'b']
        >>> retriever.calls[0].query_str
        'anything'

    """

    def __init__(
        self,
        rows: Iterable[Row] = (),
        *,
        delay_s: float = 0.0,
        error: BaseException | None = None,
    ) -> None:
        super().__init__()
        self.hits = [_hit(row) for row in rows]
        self.delay_s = delay_s
        self.error = error
        self.calls: list[QueryBundle] = []

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls.append(query_bundle)
        if self.delay_s:  # even a sleep of 0 s hands the processor to somebody else
            time.sleep(self.delay_s)
        return self._answer()

    def _answer(self) -> list[NodeWithScore]:
        if self.error is not None:
            raise self.error
        return list(self.hits)


class FakeAsyncRetriever(FakeRetriever):
    """A `FakeRetriever` that also has a real async way."""

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls.append(query_bundle)
        await asyncio.sleep(self.delay_s)
        return self._answer()


class FlakyRetriever(FakeRetriever):
    """A `FakeRetriever` that fails a few times, and then answers.

    Args:
        rows: As for `FakeRetriever`.
        failures: How many calls fail first.
        error: What they raise; a ``ConnectionError`` unless given.
        delay_s: Seconds each call takes.

    """

    def __init__(
        self,
        rows: Iterable[Row] = (),
        *,
        failures: int = 1,
        error: Exception | None = None,
        delay_s: float = 0.0,
    ) -> None:
        super().__init__(rows, delay_s=delay_s)
        self.failures = failures
        self._failure = error or ConnectionError("the source cannot be reached")

    def _answer(self) -> list[NodeWithScore]:
        if len(self.calls) <= self.failures:
            raise self._failure
        return super()._answer()


class HangingRetriever(FakeRetriever):
    """A `FakeRetriever` that answers only once `release` is called.

    Args:
        rows: As for `FakeRetriever`.
        error: Raised instead of an answer.

    Attributes:
        asked: Set as soon as the retriever has been called.
    """

    def __init__(self, rows: Iterable[Row] = (), *, error: BaseException | None = None) -> None:
        super().__init__(rows, error=error)
        self.asked = Event()
        self._released = Event()

    def release(self) -> None:
        """Let all answers go, those still to be asked for included."""
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


EVERYTHING = EngineFeatures(
    dense=ScoreRange("cosine", -1.0, 1.0), keyword=ScoreRange("bm25", low=0.0), one_round_trip=True
)


class FakeBackend:
    """Searches a list of nodes: dense by cosine, keyword by the number of shared words.

    Override `shows` for a backend whose filters leak.

    Args:
        nodes: What it finds; with embeddings of length 1 for dense search.
        features: What it serves; the rest it refuses.
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
        self._drop_violations = drop_violations
        self._store = SimpleVectorStore()

    @property
    def store(self) -> BasePydanticVectorStore:
        """A store that is not asked anything."""
        return self._store

    @property
    def features(self) -> EngineFeatures:
        """What it was told to serve."""
        return self._features

    @property
    def drop_violations(self) -> bool:
        """What it was told to do."""
        return self._drop_violations

    def describe(self) -> Mapping[str, object]:
        """Its name and size."""
        return {"engine": self.engine, "nodes": len(self.nodes)}

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Nodes by cosine."""
        if self._features.dense is None:
            raise UnsupportedModeError("this fake has no vector search")
        return Call(lambda: self._best(search, lambda node: _cosine(embedding, node)))

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Nodes by the number of words they share with the text."""
        if self._features.keyword is None:
            raise UnsupportedModeError("this fake has no keyword search")
        words = Counter(word for word in words_of(text) if word)
        return Call(lambda: self._best(search, lambda node: _shared(words, node)))

    def batch(self, queries: Sequence[EngineQuery]) -> Call[list[list[Candidate]]] | None:
        """All of them, where it was told to serve two at once."""
        if not self._features.one_round_trip:
            return None
        calls = [
            self.dense(each.embedding, each.search)
            if isinstance(each, VectorQuery)
            else self.keyword(each.text, each.search)
            for each in queries
        ]
        return Call(lambda: [each.function() for each in calls])

    def hybrid(
        self, vector: VectorQuery, keyword: KeywordQuery, choose: Choose, *, top_k: int
    ) -> Call[list[Candidate]] | None:
        """The chosen candidates of both, where it serves two at once."""
        both = self.batch([vector, keyword])
        if both is None:
            return None
        return both.then(lambda legs: chosen_candidates(choose, *legs, top_k=top_k))

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        """Both, fused by the formula that the fusion has."""
        candidates = replace(search, top_k=how.candidates)
        dense, keyword = self.dense(embedding, candidates), self.keyword(text, candidates)
        return Call(
            lambda: fuse_legs(dense.function(), keyword.function(), how, top_k=search.top_k)
        )

    def shows(self, node: TextNode, condition: Condition | None) -> bool:
        """Whether a search with this condition may find the node."""
        return matches(condition, node.metadata)

    def _best(self, search: Search, score: Callable[[TextNode], float | None]) -> list[Candidate]:
        visible = [node for node in self.nodes if self.shows(node, search.condition)]
        scored = [(node, score(node)) for node in visible]
        found = [Candidate(node, value) for node, value in scored if value is not None]
        return sorted(found, key=lambda each: (-each.score, each.node.node_id))[: search.top_k]


def _cosine(embedding: Sequence[float], node: TextNode) -> float:
    own = node.get_embedding()
    if len(embedding) != len(own):
        raise DimensionMismatchError(f"got {len(embedding)} numbers, the store has {len(own)}")
    return math.fsum(a * b for a, b in zip(embedding, own, strict=True))


def _shared(words: Counter[str], node: TextNode) -> float | None:
    shared = (words & Counter(words_of(node.text))).total()
    return float(shared) if shared else None


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


class FixedRetriever(Retriever):
    """Answers every query with the same rows, as far as scope, filters and ``top_k`` let it.

    Args:
        rows: Node id, score, and perhaps text and metadata of each hit; as for `FakeRetriever`.
        top_k: How many hits to return when the query does not say.
        name: Name in traces and ``Hit.source``, and the representation.
        delay_s: Seconds an answer takes; the event loop is free meanwhile.
        error: Raised instead of an answer, after the delay.

    Attributes:
        calls: Every query it was asked, oldest first.

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

    def _plan(self, query: Query) -> Plan[list[Hit]]:
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
