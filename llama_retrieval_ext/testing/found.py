"""What a search of a backend finds, and whether another finds the same."""

from collections.abc import Sequence
from typing import TypeVar

from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.execution.steps import call
from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.testing.with_pytest import pytest

T = TypeVar("T")


def found_by(search: Call[T]) -> T:
    """What a search finds."""
    return run(call(search))


def ids_of(found: Sequence[Found]) -> list[str]:
    """The ids, in their order."""
    return [each.node_id for each in found]


def assert_same(first: Sequence[Found], second: Sequence[Found]) -> None:
    """Fail unless both have the same nodes in the same order, with the same scores."""
    assert ids_of(first) == ids_of(second)
    scores = [each.score for each in second]
    assert [each.score for each in first] == pytest.approx(scores)
