"""What every engine promises of filters: they mean exactly what `matches` says."""

from collections.abc import Sequence
from itertools import product
from typing import ClassVar, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, FilterOperator

from llama_retrieval_ext.filters import AnyOf, Compare, Condition, Value, matches
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.open import source_of
from tests.stores.odd_metadata import CONFUSED, OddMetadata, examples, matching

S = TypeVar("S", bound=BasePydanticVectorStore)

# Nodes to an addition, and conditions to a request where an engine takes many at once.
BATCH = 20


class FiltersContract(Generic[S]):
    """Subclass it in a module with the fixtures `corpus` and `changing`.

    Attributes:
        odd: What the metadata and the conditions are made of.
        nodes: What is in the store `corpus`; `changing` is another, which the tests fill.
        confused: What a field holds, and a comparison that is easily taken for it.
    """

    odd: ClassVar[OddMetadata]
    nodes: ClassVar[Sequence[TextNode]]
    confused: ClassVar[Sequence[tuple[object, FilterOperator, Value]]] = CONFUSED

    def found(self, store: S, conditions: Sequence[Condition]) -> list[set[str]]:
        """The ids of the nodes that each condition finds."""
        backend = source_of(store).backend
        calls = [backend.dense([1.0, 0.0], Search(1000, condition)) for condition in conditions]
        return [{each.node_id for each in call.function()} for call in calls]

    @pytest.mark.slow
    @examples(5)
    @given(data=st.data())
    def test_the_engine_finds_what_matches_among_many(self, corpus: S, data: st.DataObject) -> None:
        conditions = data.draw(st.lists(self.odd.conditions, min_size=BATCH, max_size=BATCH))
        for condition, found in zip(conditions, self.found(corpus, conditions), strict=True):
            assert found == matching(self.nodes, condition), condition

    @pytest.mark.slow
    @examples(5)
    @given(data=st.data())
    def test_the_engine_agrees_on_any_metadata(self, changing: S, data: st.DataObject) -> None:
        pairs = st.tuples(self.odd.metadata, self.odd.conditions)
        cases = data.draw(st.lists(pairs, min_size=BATCH, max_size=BATCH))
        self._check(changing, cases)

    @pytest.mark.slow
    def test_the_engine_agrees_on_what_is_easily_confused(self, changing: S) -> None:
        cases = [({"k": held}, Compare("k", how, value)) for held, how, value in self.confused]
        self._check(changing, cases)

    @pytest.mark.slow
    def test_only_the_condition_of_a_scope_is_one_on_principals(self, changing: S) -> None:
        unnamed = Compare("allowed", FilterOperator.IS_EMPTY, None)
        others = [
            Compare("k", FilterOperator.EQ, "a"),
            Compare("k", FilterOperator.EQ, 3),
            Compare("k", FilterOperator.ANY, ("a",)),
            Compare("allowed", FilterOperator.CONTAINS, "ab"),
            Compare("allowed", FilterOperator.ANY, (3,)),
        ]
        kept: list[dict[str, object]] = [{"allowed": ["a"]}, {"allowed": [3]}, {"k": "b"}]
        pairs = product(kept, others)
        self._check(changing, [(held, AnyOf((unnamed, other))) for held, other in pairs])

    def _check(self, store: S, cases: Sequence[tuple[dict[str, object], Condition]]) -> None:
        nodes = [
            TextNode(id_=f"n{place}", embedding=[1.0, 0.0], metadata=held)
            for place, (held, _) in enumerate(cases)
        ]
        store.add(nodes)
        answers = self.found(store, [condition for _, condition in cases])
        for node, (held, condition), found in zip(nodes, cases, answers, strict=True):
            assert (node.node_id in found) is matches(condition, held), (held, condition)
