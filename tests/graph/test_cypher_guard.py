"""Statements of a language model are limited before they are sent."""

import pytest

from llama_retrieval_ext.graph.cypher_guard import guarded


@pytest.mark.parametrize("limit", ["9" * 5000, "9" * 19, "7"])
def test_a_limit_above_the_maximum_is_the_maximum(limit: str) -> None:
    statement = f"MATCH (a:Hazard) RETURN a.name LIMIT {limit}"
    assert guarded(statement, scope=None, limit=5).endswith(" LIMIT 5")
