"""The sample corpus and its conditions."""

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.filters import Compare, matches
from llama_retrieval_ext.testing.corpus import SAMPLE_CONDITIONS, sample_nodes


def test_the_sample_conditions_try_every_operator_both_ways() -> None:
    nodes = sample_nodes()
    counts = {
        name: sum(matches(condition, node.metadata) for node in nodes)
        for name, condition in SAMPLE_CONDITIONS.items()
    }
    tried = {
        condition.operator
        for condition in SAMPLE_CONDITIONS.values()
        if isinstance(condition, Compare)
    }
    assert tried == set(FilterOperator)
    assert counts["EQ a whole number"] == 3
    assert counts["NE on a field that no node has"] == len(nodes)
    assert counts["IN nothing"] == counts["EQ a number written as a string"] == 0
    assert sum(0 < count < len(nodes) for count in counts.values()) > 30
