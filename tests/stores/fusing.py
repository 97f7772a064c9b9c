"""Random nodes, and hybrid searches of them whose fusion by the engine is held to ours."""

from collections.abc import Iterator

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.filters import AllOf, Compare, Condition, Not
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.engine.backend import Backend, Search
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch
from llama_retrieval_ext.testing.fusion_agreement import (
    SearchCase,
    assert_fusion_agrees,
    sample_fusions,
)

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


def check_agreement(backend: Backend, *, examples: int = 25) -> None:
    """Fail unless the engine fuses as we do, whatever is searched and how."""
    fusions = list(_fusions(backend))

    @settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(st.data())
    def check(data: st.DataObject) -> None:
        how = data.draw(st.sampled_from(fusions))
        seed = data.draw(st.integers(0, 2**32 - 1))
        words = data.draw(st.lists(st.sampled_from([*WORDS, "absent"]), min_size=1, max_size=6))
        search = data.draw(_searches())
        vector = np.random.default_rng(seed).normal(size=DIM).tolist()
        assert_fusion_agrees(backend, SearchCase(vector, " ".join(words), search), how)

    check()


def _fusions(backend: Backend) -> Iterator[FusedSearch]:
    for candidates in (10, 60):
        for native in backend.features.fusions:
            yield from sample_fusions(native, candidates=candidates)


@st.composite
def _searches(draw: st.DrawFn) -> Search:
    scope = draw(st.sampled_from([None, Scope("t0"), Scope("t1")]))
    page = Compare("page", FilterOperator.EQ, draw(st.integers(0, 7)))
    filters: Condition | None = draw(st.sampled_from([None, page, Not(page)]))
    within = None if scope is None else scope.condition
    parts = [part for part in (within, filters) if part is not None]
    condition = AllOf(tuple(parts)) if len(parts) > 1 else next(iter(parts), None)
    return Search(draw(st.sampled_from([1, 5, 10])), condition, scope)
