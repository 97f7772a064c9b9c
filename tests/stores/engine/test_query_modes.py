"""LlamaIndex's query modes, over the embedded engine: their scores, and what is refused."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.mmr import maximal_marginal_relevance
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.cases import cases

WORDS = ["annual", "leave", "sick", "report", "year", "office", "canteen", "travel", "rule", "law"]
DIMENSION = 8


def corpus(size: int = 200) -> list[TextNode]:
    rng = random.Random(3)
    return [
        TextNode(
            id_=f"n{number:03}",
            text=" ".join(rng.choices(WORDS, k=rng.randint(1, 12))),
            embedding=[rng.gauss(0, 1) for _ in range(DIMENSION)],
        )
        for number in range(size)
    ]


NODES = corpus()
VECTOR = [0.5, -1.0, 0.25, 0.0, 1.0, 0.1, -0.2, 0.3]
DEFAULT, SPARSE = VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE
TEXT, HYBRID = VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.HYBRID
MMR = VectorStoreQueryMode.MMR


@pytest.fixture(scope="module")
def filled() -> Iterator[EmbeddedVectorStore]:
    """A store that the tests only read."""
    with EmbeddedVectorStore(":memory:") as store:
        store.add(NODES)
        yield store


def query(**fields: object) -> VectorStoreQuery:
    defaults = {"query_embedding": VECTOR, "query_str": "annual leave", "similarity_top_k": 10}
    return VectorStoreQuery(**{**defaults, **fields})  # type: ignore[arg-type]


def cosines(nodes: Sequence[TextNode]) -> dict[str, float]:
    rows = np.array([node.embedding for node in nodes])
    similarity = rows @ VECTOR / np.linalg.norm(rows, axis=1) / np.linalg.norm(VECTOR)
    return dict(zip([node.node_id for node in nodes], similarity.tolist(), strict=True))


def pairs(result: VectorStoreQueryResult) -> dict[str, float]:
    assert result.ids is not None
    assert result.similarities is not None
    return dict(zip(result.ids, result.similarities, strict=True))


def best(scores: dict[str, float], top_k: int) -> dict[str, float]:
    return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:top_k])


def test_default_is_exact_cosine(filled: EmbeddedVectorStore) -> None:
    result = filled.query(query())
    expected = best(cosines(NODES), 10)
    assert result.ids == list(expected)
    assert pairs(result) == pytest.approx(expected, abs=1e-6)
    assert result.nodes is not None
    assert [node.node_id for node in result.nodes] == result.ids
    assert all(node.embedding is None for node in result.nodes)


@pytest.mark.parametrize("mode", [SPARSE, TEXT])
def test_keyword_modes_find_what_shares_words(
    filled: EmbeddedVectorStore, mode: VectorStoreQueryMode
) -> None:
    result = filled.query(query(mode=mode, similarity_top_k=1000))
    sharing = {n.node_id for n in NODES if {"annual", "leave"} & set(n.text.split())}
    assert set(result.ids or []) == sharing
    assert result.similarities == sorted(result.similarities or [], reverse=True)
    assert min(result.similarities or []) > 0
    assert filled.query(query(mode=mode, sparse_top_k=3)).similarities == result.similarities[:3]


def test_hybrid_without_alpha_is_reciprocal_rank_fusion(filled: EmbeddedVectorStore) -> None:
    dense = filled.query(query(similarity_top_k=20)).ids or []
    keyword = filled.query(query(mode=TEXT, similarity_top_k=30)).ids or []
    scores: dict[str, float] = {}
    for leg in (dense, keyword):
        for rank, node_id in enumerate(leg, start=1):
            scores[node_id] = scores.get(node_id, 0.0) + 1 / (60 + rank)
    request = query(mode=HYBRID, similarity_top_k=20, sparse_top_k=30, hybrid_top_k=15)
    assert pairs(filled.query(request)) == pytest.approx(best(scores, 15))


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_hybrid_with_alpha_weighs_normalised_scores(
    filled: EmbeddedVectorStore, alpha: float
) -> None:
    scores: dict[str, float] = {}
    for weight, mode in ((alpha, DEFAULT), (1 - alpha, TEXT)):
        leg = pairs(filled.query(query(mode=mode)))
        low, high = min(leg.values()), max(leg.values())
        for node_id, score in leg.items():
            if weight:
                share = weight * (score - low) / (high - low)
                scores[node_id] = scores.get(node_id, 0.0) + share
    result = filled.query(query(mode=HYBRID, alpha=alpha))
    assert pairs(result) == pytest.approx(best(scores, 10))


@cases("threshold", [0.0, 0.5, 1.0])
def test_mmr_picks_what_the_formula_picks(filled: EmbeddedVectorStore, threshold: float) -> None:
    similar = best(cosines(NODES), 40)
    by_id = {node.node_id: node for node in NODES}
    picks = maximal_marginal_relevance(
        list(similar.values()),
        [by_id[node_id].embedding or [] for node_id in similar],
        top_k=10,
        lambda_mult=threshold,
    )
    expected = [list(similar)[place] for place, _ in picks]
    result = filled.query(query(mode=MMR, mmr_threshold=threshold))
    assert result.ids == expected
    assert pairs(result) == pytest.approx({each: similar[each] for each in expected}, abs=1e-6)
    for asked in (query(mode=MMR), query(mode=MMR, mmr_threshold=threshold)):
        assert filled.query(asked, mmr_threshold=threshold).ids == expected


@pytest.mark.parametrize("order", [1, -1])
def test_mmr_breaks_ties_by_node_id(store: EmbeddedVectorStore, order: int) -> None:
    directions = {"x": [1.0, 0.0, 0.5], "y": [0.0, 1.0, 0.5]}
    nodes = [
        TextNode(id_=f"{number}-{name}", embedding=embedding)
        for name, embedding in directions.items()
        for number in range(9)
    ]
    store.add(nodes[::order])
    request = query(mode=MMR, query_embedding=[1.0, 1.0, 1.0], similarity_top_k=4)
    assert store.query(request, mmr_prefetch_factor=5).ids == ["0-x", "0-y", "1-x", "1-y"]


@cases("top_k", [1, 200, 1000, 10**12])
def test_top_k_can_be_anything_from_one(filled: EmbeddedVectorStore, top_k: int) -> None:
    for mode in (DEFAULT, HYBRID, MMR):
        assert len(filled.query(query(mode=mode, similarity_top_k=top_k)).ids or []) == min(
            top_k, 200
        )


def test_a_vector_store_index_searches_in_every_mode(store: EmbeddedVectorStore) -> None:
    model = FakeEmbedding()
    texts = ["annual leave is 25 days", "travel by train", "the canteen opens at noon"]
    nodes = [TextNode(id_=f"n{place}", text=text) for place, text in enumerate(texts)]
    VectorStoreIndex.from_vector_store(store, embed_model=model).insert_nodes(nodes)
    index = VectorStoreIndex.from_vector_store(store, embed_model=model)
    for mode in ("default", "sparse", "hybrid", "mmr"):
        retriever = index.as_retriever(similarity_top_k=1, vector_store_query_mode=mode)
        assert [hit.node.node_id for hit in retriever.retrieve("canteen at noon")] == ["n2"]


@cases(
    ("fields", "options", "reason"),
    [
        ({"mode": SPARSE, "sparse_top_k": 0}, {}, "at least 1"),
        ({"mode": MMR, "mmr_threshold": -0.1}, {}, "mmr_threshold must be between"),
        ({"embedding_field": "dense"}, {}, "no embedding_field"),
        ({"mmr_threshold": 0.5}, {}, "DEFAULT has no mmr_threshold"),
        ({}, {"mmr_threshold": 0.5}, "DEFAULT has no options mmr_threshold"),
        ({"mode": MMR}, {"mmr_prefetch_k": 20, "mmr_prefetch_factor": 2.0}, "got both"),
        ({"mode": MMR}, {"mmr_prefetch_k": 9}, "a whole number of at least 10, got 9"),
        ({"mode": MMR}, {"mmr_prefetch_factor": 0}, "a number from 1, got 0"),
        ({"mode": MMR, "mmr_threshold": 0.3}, {"mmr_threshold": 0.7}, "=0.3 and .*=0.7"),
    ],
)
def test_fields_and_options_that_a_mode_cannot_use_are_refused(
    filled: EmbeddedVectorStore, fields: dict[str, object], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        filled.query(query(**fields), **options)
