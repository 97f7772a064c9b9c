"""The comparison of an engine's fusion with ours accepts ours and rejects another."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.engine.backend import Candidate, Search
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch, NativeFusion
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fake_backend import EVERYTHING, FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.fusion_agreement import (
    SearchCase,
    assert_fusion_agrees,
    sample_fusions,
)

MODEL = FakeEmbedding()
CASE = SearchCase(MODEL.get_query_embedding("annual leave"), "annual leave days", Search(4))


class OtherScores(FakeBackend):
    """Fuses with a wrong weight."""

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        return super().fused(embedding, text, search, replace(how, weights=(1.0, 9.0)))


NATIVE = (
    NativeFusion(kind=RRF),
    NativeFusion(kind=WeightedSum, scales=(Normalisation.MIN_MAX, Normalisation.MIN_MAX)),
)
FEATURES = replace(EVERYTHING, fusions=NATIVE)
fusions = pytest.mark.parametrize(
    "how", [how for native in NATIVE for how in sample_fusions(native, candidates=10)], ids=str
)


@fusions
def test_our_own_fusion_agrees(how: FusedSearch) -> None:
    assert_fusion_agrees(FakeBackend(sample_nodes(MODEL), features=FEATURES), CASE, how)


@fusions
def test_a_fusion_with_other_weights_does_not_agree(how: FusedSearch) -> None:
    with pytest.raises(AssertionError):
        assert_fusion_agrees(OtherScores(sample_nodes(MODEL), features=FEATURES), CASE, how)
