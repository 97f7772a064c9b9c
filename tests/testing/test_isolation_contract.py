"""The isolation contract fails for a retriever that ignores scopes and filters."""

from collections.abc import Callable

import pytest

from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.testing.retriever_contract import RetrieverContract
from tests.cases import cases
from tests.testing.test_retriever_contract import Unscoped

CONTRACT = RetrieverContract()


@cases(
    "promise",
    [
        CONTRACT.test_each_tenant_has_an_answer_and_they_share_nothing,
        CONTRACT.test_threads_with_scopes_of_their_own_do_not_meet,
        CONTRACT.test_a_bound_scope_shows_what_belongs_to_it_and_only_that,
        CONTRACT.test_filters_keep_what_matches_and_only_that,
    ],
)
def test_a_leak_fails_the_isolation_contract(promise: Callable[[Retriever], None]) -> None:
    with pytest.raises(AssertionError):
        promise(Unscoped())


def test_a_failure_of_the_contract_names_its_case() -> None:
    with pytest.raises(AssertionError) as failure:
        CONTRACT.test_filters_keep_what_matches_and_only_that(Unscoped())
    assert failure.value.__notes__ == [f"case: {CONTRACT.queries[0]!r}, 'one language'"]
