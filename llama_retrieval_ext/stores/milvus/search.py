"""Searches of a store, for the LlamaIndex class and for the backend alike."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from pymilvus import AnnSearchRequest, MilvusClient, RRFRanker, WeightedRanker
from pymilvus.client.abstract import BaseRanker

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_id_in
from llama_retrieval_ext.stores.encoding.values import utf8_safe
from llama_retrieval_ext.stores.encoding.vectors import Distance, query_vector
from llama_retrieval_ext.stores.engine.backend import Candidate
from llama_retrieval_ext.stores.engine.old_searcher import Sought, fused_here
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch, NativeFusion
from llama_retrieval_ext.stores.milvus.collection import Collection
from llama_retrieval_ext.stores.milvus.filters import Expression
from llama_retrieval_ext.stores.milvus.nodes import query_terms
from llama_retrieval_ext.stores.milvus.schema import BM25, DENSE, DOC_KEY, GROUPING, METRICS, NODE

Hit: TypeAlias = Mapping[str, Any]  # as pymilvus has it: id, distance, entity

# What one request returns at most, on every Milvus.
MOST: Final = 16_384


def check_within(top_k: int) -> None:
    """Refuse to look for more hits than Milvus returns.

    Raises:
        ConfigurationError: There are too many.
    """
    if top_k > MOST:
        raise ConfigurationError(f"Milvus returns at most {MOST} hits, got top_k={top_k}")


def first_limit(top_k: int, *, spare: int = 1) -> int:
    """How many to ask for at first: some more than wanted show a tie where the ranking is cut."""
    return min(top_k + spare, MOST)


def best_hits(
    ask: Callable[[int], Sequence[Hit]],
    *,
    top_k: int,
    score: Callable[[Hit], float],
    keep: Callable[[Hit], bool] = lambda _: True,
    spare: int = 1,
) -> tuple[list[Hit], bool]:
    """The best hits that are to be kept, at least ``top_k`` where there are as many.

    Args:
        ask: Gives the best hits of all, as many as it is told.
        top_k: How many are wanted.
        score: Of a hit.
        keep: Whether a hit counts.
        spare: How many more than wanted to ask for at first, so that a tie where the ranking is
            cut shows.

    Returns:
        The hits, with all that tie with the last that is wanted, so that ids can decide between
        them; and whether there may be more that Milvus does not return.
    """
    limit = first_limit(top_k, spare=spare)
    while True:
        hits = ask(limit)
        kept = [hit for hit in hits if keep(hit)]
        if len(hits) < limit:
            return kept, False
        if len(kept) >= top_k and score(kept[top_k - 1]) != score(hits[-1]):
            return kept, False
        if limit == MOST:
            return kept, len(kept) < top_k
        limit = min(4 * limit, MOST)


@dataclass(frozen=True, slots=True)
class Question:
    """One search.

    Attributes:
        sought: An embedding, or a text.
        column: Where to look for it.
        filter: The expression that each must satisfy; empty for everything.
        params: How to search, by the number of hits wanted.
        score: From the engine's distance to ours: finite, higher is better.
        positive: Whether a score of 0 is no hit, as of a text that shares no term.
    """

    sought: Sequence[float] | str
    column: str
    filter: str
    params: Callable[[int], Mapping[str, Any]]
    score: Callable[[float], float]
    positive: bool = False


@dataclass(frozen=True, slots=True)
class FusedRequest:
    """Searches, and how the engine makes one of them.

    Attributes:
        legs: The searches.
        candidates: How many hits of each are looked at.
        ranker: The engine's fusion.
        score: From the engine's score to ours.
    """

    legs: tuple[Question, ...]
    candidates: int
    ranker: BaseRanker
    score: Callable[[float], float]


def ranking(collection: Collection, question: Question, top_k: int) -> list[Candidate]:
    """The best of a collection: best first, equal scores by node id.

    Raises:
        ConfigurationError: More are wanted than Milvus returns.
    """
    return rankings(collection, [question], [top_k])[0]


def fused_ranking(collection: Collection, fused: FusedRequest, top_k: int) -> list[Candidate]:
    """The best as Milvus fuses them: best first, equal scores by node id.

    Raises:
        ConfigurationError: There are more candidates than Milvus returns.
    """
    check_within(fused.candidates)

    def asked(client: MilvusClient) -> list[Hit]:
        # Fused ranks often tie in pairs: with two to spare, such a pair is not cut through.
        best, _ = best_hits(
            lambda limit: _asked_to_fuse(client, collection, fused, limit),
            top_k=top_k,
            score=lambda hit: fused.score(hit["distance"]),
            spare=2,
        )
        return best

    nothing: list[Hit] = []
    return _ordered(collection.read(asked, empty=nothing), fused.score)[:top_k]


def groups(
    collection: Collection, question: Question, documents: int, size: int
) -> list[Candidate]:
    """The best nodes of the best documents, best first.

    Args:
        collection: Which is asked.
        question: What is looked for.
        documents: How many.
        size: How many nodes of each.

    Raises:
        ConfigurationError: More are wanted than Milvus returns.
    """
    check_within(documents * size)
    by_document = {"group_by_field": DOC_KEY, "group_size": size}

    def asked(client: MilvusClient) -> list[Hit]:
        return _asked(client, collection, [question], documents, **by_document)[0]

    nothing: list[Hit] = []
    found = _ordered(collection.read(asked, empty=nothing), question.score)
    return [each for each in found if each.score > 0 or not question.positive]


def rankings(
    collection: Collection, questions: Sequence[Question | None], top_ks: Sequence[int]
) -> list[list[Candidate]]:
    """One ranking a question; those that differ in what they seek alone go out as one request.

    Args:
        collection: Which is asked.
        questions: None for one that nothing can answer.
        top_ks: How many hits each wants.

    Raises:
        ConfigurationError: More are wanted than Milvus returns.
    """
    for top_k in top_ks:
        check_within(top_k)
    alike: dict[tuple[str, str, int], list[int]] = {}
    for place, (question, top_k) in enumerate(zip(questions, top_ks, strict=True)):
        if question is not None:
            alike.setdefault((question.column, question.filter, top_k), []).append(place)

    def asked(client: MilvusClient) -> dict[int, list[Candidate]]:
        found: dict[int, list[Candidate]] = {}
        for (*_, top_k), places in alike.items():
            some = [each for place in places if (each := questions[place]) is not None]
            found |= zip(places, _answers(client, collection, some, top_k), strict=True)
        return found

    nothing: dict[int, list[Candidate]] = {}
    found = collection.read(asked, empty=nothing) if alike else nothing
    return [found.get(place, []) for place in range(len(questions))]


def _answers(
    client: MilvusClient, collection: Collection, questions: Sequence[Question], top_k: int
) -> list[list[Candidate]]:
    """Asks all once, and those again whose ranking is cut between nodes that tie."""
    first = first_limit(top_k)
    pages = _asked(client, collection, questions, first)

    def answer(question: Question, page: list[Hit]) -> list[Candidate]:
        hits, _ = best_hits(
            lambda limit: (
                page if limit == first else _asked(client, collection, [question], limit)[0]
            ),
            top_k=top_k,
            score=lambda hit: question.score(hit["distance"]),
        )
        found = _ordered(hits, question.score)[:top_k]
        return [each for each in found if each.score > 0 or not question.positive]

    return [answer(question, page) for question, page in zip(questions, pages, strict=True)]


def _ordered(hits: Sequence[Hit], score: Callable[[float], float]) -> list[Candidate]:
    found = [_found(hit, score) for hit in hits]
    found.sort(key=lambda each: (-each.score, each.node_id))
    return found


def _asked(
    client: MilvusClient,
    collection: Collection,
    questions: Sequence[Question],
    limit: int,
    **options: Any,  # noqa: ANN401 - whatever pymilvus takes
) -> list[list[Hit]]:
    """What the engine answers to questions that differ in what they seek alone."""
    one = questions[0]
    pages = client.search(
        collection.name,
        data=[each.sought for each in questions],
        anns_field=one.column,
        filter=one.filter,
        limit=limit,
        output_fields=[NODE],
        search_params=dict(one.params(limit)),
        **options,
        timeout=collection.connection.timeout_s,
    )
    return [list(page) for page in pages]


def _asked_to_fuse(
    client: MilvusClient, collection: Collection, fused: FusedRequest, limit: int
) -> list[Hit]:
    requests = [
        AnnSearchRequest(
            data=[leg.sought],
            anns_field=leg.column,
            param=dict(leg.params(fused.candidates)),
            limit=fused.candidates,
            expr=leg.filter,
        )
        for leg in fused.legs
    ]
    pages = client.hybrid_search(
        collection.name,
        requests,
        fused.ranker,
        limit=limit,
        output_fields=[NODE],
        timeout=collection.connection.timeout_s,
    )
    return list(pages[0])


def _found(hit: Hit, score: Callable[[float], float]) -> Candidate:
    text: str = hit["entity"][NODE]
    return Candidate.later(node_id_in(text), score(hit["distance"]), lambda: node_from_text(text))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What every kind of search is told besides what to look for.

    Attributes:
        top_k: How many to return, at least 1.
        expression: What each must satisfy.
    """

    top_k: int
    expression: Expression = True

    @property
    def filter(self) -> str:
        """As pymilvus takes it."""
        return self.expression if isinstance(self.expression, str) else ""


class Searcher:
    """Asks the engine. Rankings come best first, equal scores by node id; an empty store gives [].

    Args:
        collection: The collection.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    @property
    def is_lite(self) -> bool:
        """Whether the engine is Milvus Lite."""
        return self._collection.connection.is_lite

    @property
    def groups(self) -> bool:
        """Whether the engine can go by documents."""
        return self._collection.index_type in GROUPING

    def dense(self, embedding: Sequence[float], wanted: Wanted) -> list[Candidate]:
        """Nearest nodes to an embedding.

        Raises:
            ConfigurationError: A value of it is not finite.
            DimensionMismatchError: It has another dimension than the store.
        """
        question = self._nearest(embedding, wanted)
        return [] if question is None else ranking(self._collection, question, wanted.top_k)

    def keyword(self, text: str, wanted: Wanted) -> list[Candidate]:
        """Nodes that share terms with a text, by BM25; each has a score above 0."""
        question = self._sharing(text, wanted)
        return [] if question is None else ranking(self._collection, question, wanted.top_k)

    def batch(self, asked: Sequence[tuple[Sought, Wanted]]) -> list[list[Candidate]]:
        """Any number of them, those of one kind and filter in one request.

        Args:
            asked: An embedding to be near to, or a text to share terms with; and how many nodes,
                and which.

        Raises:
            ConfigurationError: A value of an embedding is not finite.
            DimensionMismatchError: An embedding has another dimension than the store.
        """
        questions = [self._question(each, wanted) for each, wanted in asked]
        top_ks = [wanted.top_k for _, wanted in asked]
        return rankings(self._collection, questions, top_ks)

    def fused(
        self, embedding: Sequence[float], text: str, wanted: Wanted, how: FusedSearch
    ) -> list[Candidate]:
        """The best of both as the engine fuses them.

        Raises:
            ConfigurationError: A value of the embedding is not finite, or there are more candidates
                than Milvus returns.
            DimensionMismatchError: It has another dimension than the store.
        """
        candidates = replace(wanted, top_k=how.candidates)
        sharing = self._sharing(text, wanted)
        nearest = self._nearest(embedding, wanted)
        if sharing is None or nearest is None:
            return fused_here(self.dense(embedding, candidates), [], how, top_k=wanted.top_k)
        ranker, score = ranker_of(how)
        legs = FusedRequest((nearest, sharing), how.candidates, ranker, score)
        return fused_ranking(self._collection, legs, wanted.top_k)

    def grouped(self, sought: Sought, wanted: Wanted, size: int) -> list[Candidate]:
        """The best nodes of the best documents, best first.

        Args:
            sought: An embedding to be near to, or a text to share terms with.
            wanted: How many documents, and which nodes.
            size: How many nodes of a document.

        Raises:
            ConfigurationError: A value of an embedding is not finite, or more are wanted than
                Milvus returns.
            DimensionMismatchError: An embedding has another dimension than the store.
        """
        question = self._question(sought, wanted)
        if question is None:
            return []
        return groups(self._collection, question, wanted.top_k, size)

    def _question(self, sought: Sought, wanted: Wanted) -> Question | None:
        if isinstance(sought, str):
            return self._sharing(sought, wanted)
        return self._nearest(sought, wanted)

    def _nearest(self, embedding: Sequence[float], wanted: Wanted) -> Question | None:
        manifest = self._collection.manifest
        vector = query_vector(
            embedding,
            dimension=manifest.dimension or len(embedding),
            distance=manifest.distance,
            where=self._collection.where,
        )
        if wanted.expression is False:
            return None
        return Question(
            vector, DENSE, wanted.filter, self._dense_params, _SCORES[manifest.distance]
        )

    def _sharing(self, text: str, wanted: Wanted) -> Question | None:
        manifest = self._collection.manifest
        plain = manifest.analyzer is not None
        sought = utf8_safe(text) if plain else query_terms(text, manifest.tokenizer)
        if wanted.expression is False or not sought.strip():
            return None
        # BM25 has no scores below 0: abs(), because Milvus Lite turns them round, Milvus not.
        return Question(sought, BM25, wanted.filter, _bm25_params, abs, positive=True)

    def _dense_params(self, limit: int) -> Mapping[str, Any]:
        given = dict(self._collection.params.search_params)
        if self._collection.index_type.startswith("HNSW"):
            given["ef"] = max(limit, given.get("ef", 0))  # Milvus refuses a smaller one
        return {"metric_type": METRICS[self._collection.manifest.distance], "params": given}


def _bm25_params(_: int) -> Mapping[str, Any]:
    return {"metric_type": "BM25"}


def _cosine(score: float) -> float:
    return min(1.0, max(-1.0, score))  # single precision oversteps by some 1e-7


def _negative_root(squared: float) -> float:
    return -math.sqrt(max(0.0, squared))


_SCORES: Final[Mapping[Distance, Callable[[float], float]]] = {
    "cosine": _cosine,
    "dot": float,
    "euclid": _negative_root,
}


BY_RANK: Final = NativeFusion(kind=RRF, least_k=1, most_k=16_383, equal_weights=True)
BY_SUM: Final = NativeFusion(kind=WeightedSum, scales=(Normalisation.NONE, Normalisation.NONE))


def fusions_of(kind: str, *, lite: bool) -> tuple[NativeFusion, ...]:
    """The fusions there are for scores of a kind.

    Args:
        kind: What ``ScoreRange.kind`` says of vector search. Distances are rescaled before they
            are added.
        lite: Whether it is Milvus Lite. Servers before some 2.5 rescale all scores whatever they
            are told, and none could be tried; so none is trusted with sums.
    """
    return (BY_RANK, BY_SUM) if lite and kind in {"cosine", "dot"} else (BY_RANK,)


def ranker_of(how: FusedSearch) -> tuple[BaseRanker, Callable[[float], float]]:
    """The engine's fusion, and what turns its score into ours."""
    rrf = how.by_rank
    if rrf is None:
        return WeightedRanker(*how.proportions, norm_score=False), float
    weight = how.weights[0]
    return RRFRanker(int(rrf.k)), lambda score: weight * score
