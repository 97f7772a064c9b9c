"""Requests have a bounded size in every part."""

import pytest
from pydantic import ValidationError

from llama_retrieval_ext.serve.requests import FieldCondition


@pytest.mark.parametrize("value", [["a"], [1], [1.5]])
def test_the_values_of_a_condition_are_limited(value: list[object]) -> None:
    assert FieldCondition(key="k", operator="in", value=value * 100).to_filter().value  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="at most 100 items"):
        FieldCondition(key="k", operator="in", value=value * 101)  # type: ignore[arg-type]
