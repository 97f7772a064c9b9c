"""Puts questions to a collection and makes rankings of the answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymilvus import AnnSearchRequest, MilvusClient
from pymilvus.client.abstract import BaseRanker

from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.embedded.stored_node import node_from_text, node_id_in
from llama_retrieval_ext.stores.milvus.collection import Collection
from llama_retrieval_ext.stores.milvus.hits import Hit, best_hits, check_within
from llama_retrieval_ext.stores.milvus.schema import NODE


@dataclass(frozen=True, slots=True)
class Question:
    """One search.

    Attributes:
        sought: An embedding, or a text.
        column: Where to look for it.
        filter: The expression that each must satisfy; empty for everything.
        params: How to search, by the number of hits wanted.
        score: From the engine's distance to ours: finite, higher is better.
    """

    sought: Sequence[float] | str
    column: str
    filter: str
    params: Callable[[int], Mapping[str, Any]]
    score: Callable[[float], float]


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


def ranking(collection: Collection, question: Question | Fused, top_k: int) -> list[Found]:
    """The best of a collection: best first, equal scores by node id.

    Raises:
        ConfigurationError: More are wanted than Milvus returns.
    """
    check_within(top_k if isinstance(question, Question) else question.candidates)

    def asked(client: MilvusClient) -> list[Hit]:
        # Fused ranks often tie in pairs: with two to spare, such a pair is not cut through.
        best, _ = best_hits(
            lambda limit: _asked(client, collection, question, limit),
            top_k=top_k,
            score=lambda hit: question.score(hit["distance"]),
            spare=1 if isinstance(question, Question) else 2,
        )
        return best

    nothing: list[Hit] = []
    hits = collection.read(asked, empty=nothing)
    found = [_found(hit, question.score) for hit in hits]
    found.sort(key=lambda each: (-each.score, each.node_id))
    return found[:top_k]


def _asked(
    client: MilvusClient, collection: Collection, question: Question | Fused, limit: int
) -> list[Hit]:
    if isinstance(question, Fused):
        return _asked_to_fuse(client, collection, question, limit)
    pages = client.search(
        collection.name,
        data=[question.sought],
        anns_field=question.column,
        filter=question.filter,
        limit=limit,
        output_fields=[NODE],
        search_params=dict(question.params(limit)),
        timeout=collection.connection.timeout_s,
    )
    return list(pages[0])


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
