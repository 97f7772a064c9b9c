"""What engines fuse by themselves is what this package would make of the same two rankings."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.filters import Compare, Condition, Not, both
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.fusion import RRF, Max, WeightedSum
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch, Line, NativeFusion, check_native
from llama_retrieval_ext.testing.fusion_agreement import (
    SearchCase,
    assert_fusion_agrees,
    sample_fusions,
)
from tests.quick import trials
from tests.servers.elasticsearch import elasticsearch_url
from tests.stores.engines import filled

__all__ = ["elasticsearch_url"]

BY_RANK = NativeFusion(kind=RRF, least_k=1, most_k=100, equal_weights=True)
BY_SUM = NativeFusion(kind=WeightedSum, scales=(Normalisation.COSINE, Normalisation.NONE))
EVEN = {"vector": 1.0, "keyword": 1.0}


NODES = 400
DIM = 24
WORDS = [f"word{number}" for number in range(50)]


def random_nodes() -> list[TextNode]:
    """Nodes of two tenants, with texts of 3 to 40 words."""
    rng = np.random.default_rng(7)
    return [
        TextNode(
            id_=f"n{number:03}",
            text=" ".join(rng.choice(WORDS, rng.integers(3, 40))),
            embedding=vector.tolist(),
            metadata={"tenant_id": f"t{number % 2}", "page": number % 7},
        )
        for number, vector in enumerate(rng.normal(size=(NODES, DIM)))
    ]


def random_case(rng: random.Random) -> SearchCase:
    """A hybrid search by some words and a vector, with or without scope and filter."""
    scope = rng.choice([None, Scope("t0"), Scope("t1")])
    page = Compare("page", FilterOperator.EQ, rng.randrange(8))
    filters: Condition | None = rng.choice([None, page, Not(page)])
    condition = both(None if scope is None else scope.condition, filters)
    words = rng.choices([*WORDS, "absent"], k=rng.randint(1, 6))
    vector = [rng.gauss(0, 1) for _ in range(DIM)]
    return SearchCase(vector, " ".join(words), Search(rng.choice([1, 5, 10]), condition, scope))


_ALONE = {"number_of_replicas": 0}
_SETTINGS: dict[str, list[dict[str, Any]]] = {
    "embedded": [{}, {"distance": "dot"}, {"distance": "euclid"}],
    "qdrant": [{}],
    "milvus": [{}, {"distance": "dot"}],
    "elasticsearch": [{"store_params": {**_ALONE, "number_of_shards": 3}}],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "settings"),
    [(engine, setting) for engine, settings in _SETTINGS.items() for setting in settings],
    ids=str,
)
def test_native_fusion_agrees_with_ours(
    engine: str, settings: dict[str, Any], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    rng, nodes = random.Random(7), random_nodes()
    with filled(engine, nodes, request=request, folder=tmp_path, **settings) as backend:
        fusions = [
            fusion
            for candidates in (10, 60)
            for native in backend.features.fusions
            for fusion in sample_fusions(native, candidates=candidates)
        ]
        for _ in range(trials(5)):
            assert_fusion_agrees(backend, random_case(rng), rng.choice(fusions))


class TestRefused:
    @pytest.mark.parametrize(
        ("fusion", "weights"),
        [
            (RRF(k=0), EVEN),
            (RRF(k=101), EVEN),
            (RRF(), {"vector": 2.0, "keyword": 1.0}),
            (RRF(), {"vector": 1.0, "keyword": 0.0}),
            (WeightedSum(normalise=Normalisation.NONE), EVEN),
            (Max(), EVEN),
        ],
        ids=repr,
    )
    def test_a_fusion_that_the_engine_computes_differently(
        self, fusion: Any, weights: dict[str, float]
    ) -> None:
        with pytest.raises(UnsupportedModeError, match="k=a whole number from 1 to 100"):
            check_native([BY_RANK, BY_SUM], fusion, weights, engine="some")

    def test_a_subclass_with_another_formula(self) -> None:
        class Other(RRF):
            def combine(self, shares: Any) -> Any:
                return super(RRF, self).combine(shares)

        assert BY_RANK.is_as(RRF(), (1, 1))
        assert not BY_RANK.is_as(Other(), (1, 1))

    def test_every_fusion_on_an_engine_without_fusions(self) -> None:
        with pytest.raises(UnsupportedModeError, match="leave pushdown out"):
            check_native([], RRF(), EVEN, engine="some")


def test_a_missing_score_adds_nothing_to_a_fused_score() -> None:
    scales = {"vector": Normalisation.COSINE, "keyword": Normalisation.NONE}
    how = FusedSearch(WeightedSum(normalise=scales), (3.0, 1.0), 10)
    assert how.lines == (Line(0.375, 0.375), Line(0.25, 0.0))
    assert [line.slope * line.root + line.intercept for line in how.lines] == [0.0, 0.0]
