"""Puts questions to a collection and makes rankings of the answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymilvus import AnnSearchRequest, MilvusClient
from pymilvus.client.abstract import BaseRanker

from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.milvus.collection import Collection
from llama_retrieval_ext.stores.milvus.hits import Hit, best_hits, check_within, first_limit
from llama_retrieval_ext.stores.milvus.schema import DOC_KEY, NODE
from llama_retrieval_ext.stores.nodes.stored_node import node_from_text, node_id_in


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
class Fused:
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


def ranking(collection: Collection, question: Question, top_k: int) -> list[Found]:
    """The best of a collection: best first, equal scores by node id.

    Raises:
        ConfigurationError: More are wanted than Milvus returns.
    """
    return rankings(collection, [question], [top_k])[0]


def fused_ranking(collection: Collection, fused: Fused, top_k: int) -> list[Found]:
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


def groups(collection: Collection, question: Question, documents: int, size: int) -> list[Found]:
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
) -> list[list[Found]]:
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

    def asked(client: MilvusClient) -> dict[int, list[Found]]:
        found: dict[int, list[Found]] = {}
        for (*_, top_k), places in alike.items():
            some = [each for place in places if (each := questions[place]) is not None]
            found |= zip(places, _answers(client, collection, some, top_k), strict=True)
        return found

    nothing: dict[int, list[Found]] = {}
    found = collection.read(asked, empty=nothing) if alike else nothing
    return [found.get(place, []) for place in range(len(questions))]


def _answers(
    client: MilvusClient, collection: Collection, questions: Sequence[Question], top_k: int
) -> list[list[Found]]:
    """Asks all once, and those again whose ranking is cut between nodes that tie."""
    first = first_limit(top_k)
    pages = _asked(client, collection, questions, first)

    def answer(question: Question, page: list[Hit]) -> list[Found]:
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


def _ordered(hits: Sequence[Hit], score: Callable[[float], float]) -> list[Found]:
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
    client: MilvusClient, collection: Collection, fused: Fused, limit: int
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


def _found(hit: Hit, score: Callable[[float], float]) -> Found:
    text: str = hit["entity"][NODE]
    return Found.later(node_id_in(text), score(hit["distance"]), lambda: node_from_text(text))
