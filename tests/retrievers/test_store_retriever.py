"""The gate behind every search of a store."""

from functools import partial

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import ScopeViolationError
from llama_retrieval_ext.execution.context import Context, Session, entered
from llama_retrieval_ext.filters import Compare
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers.store_retriever import checked_hits
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stores.engine.backend import Candidate
from tests.cases import cases

ACME = Scope("acme").condition
checked = partial(checked_hits, store="FakeStore", drop_violations=False, source="vector")


def candidates(*tenants: str | None) -> list[Candidate]:
    nodes = [
        TextNode(id_=f"{place}-{tenant}", metadata={} if tenant is None else {"tenant_id": tenant})
        for place, tenant in enumerate(tenants)
    ]
    return [Candidate(node, 1.0 - place / 10) for place, node in enumerate(nodes)]


def test_hits_pass_without_a_condition() -> None:
    hits = checked(candidates("acme", "globex"), None)
    assert [(hit.node_id, hit.score, hit.source) for hit in hits] == [
        ("0-acme", 1.0, "vector"),
        ("1-globex", 0.9, "vector"),
    ]


def test_hits_within_the_scope_pass_in_their_order() -> None:
    hits = checked(candidates("acme", "acme"), ACME)
    assert node_ids(hits) == ["0-acme", "1-acme"]
    assert checked([], ACME) == []


@cases("tenant", ["globex", None, "ACME", ""])
def test_a_hit_outside_the_scope_is_an_error_that_names_it(tenant: str | None) -> None:
    with pytest.raises(ScopeViolationError, match="returned 1 of 2 hits") as caught:
        checked(candidates("acme", tenant), ACME)
    assert caught.value.node_ids == (f"1-{tenant}",)


def test_drop_violations_drops_hits_outside_the_scope_and_names_them_only_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with entered(Context(Session())) as frame:
        hits = checked(candidates("globex", "acme"), ACME, drop_violations=True)
    assert node_ids(hits) == ["1-acme"]
    (part,) = frame.session.degraded
    assert part.where == "vector"
    assert "1 of 2 hits" in part.reason
    assert "0-globex" not in part.reason  # it goes to whoever asked, who may not see even its id
    assert "0-globex" in caplog.text


def test_a_hit_outside_the_filters_is_an_error() -> None:
    recent = Compare("year", FilterOperator.GTE, 2020)
    old = [Candidate(TextNode(id_="old", metadata={"year": 2019}), 1.0)]
    with pytest.raises(ScopeViolationError):
        checked(old, recent)
