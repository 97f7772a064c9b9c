from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import ConfigurationError, ScopeError
from llama_retrieval_ext.filters import AllOf, Compare, matches
from llama_retrieval_ext.scope import Scope
from tests.cases import cases

IS_ACME = Compare("tenant_id", FilterOperator.EQ, "acme")

IDS = st.sampled_from(["one", "two", "three"])
KB_IDS = st.lists(IDS, min_size=1, max_size=3)
SCOPES = st.builds(Scope, st.sampled_from(["acme", "globex"]), st.none() | KB_IDS) | st.builds(
    Scope, st.none(), KB_IDS
)
METADATA = st.fixed_dictionaries(
    {}, optional={"tenant_id": st.sampled_from(["acme", "globex"]), "kb_id": IDS}
)


def test_a_scope_names_a_tenant_or_knowledge_bases_or_both() -> None:
    assert Scope("acme").condition == IS_ACME
    in_handbook = Compare("kb_id", FilterOperator.IN, ("handbook",))
    assert Scope(kb_ids=["handbook"]).condition == in_handbook
    assert Scope("acme", ["handbook"]).condition == AllOf((IS_ACME, in_handbook))


def test_a_scope_is_a_value() -> None:
    assert Scope("acme", ["b", "a", "b"]) == Scope("acme", ("b", "a"))
    assert hash(Scope("acme", ["a"])) == hash(Scope("acme", ("a",)))
    with pytest.raises(AttributeError):
        Scope("acme").tenant_id = "globex"  # type: ignore[misc]


@cases(
    ("tenant_id", "kb_ids", "message"),
    [
        (None, None, "needs a tenant_id or at least one of kb_ids"),
        (None, 5, "kb_ids must be a list of ids, got 5"),
        ("acme", [], "kb_ids is empty, which would show no knowledge base"),
        (None, [["a"]], "non-empty strings"),
        ("", None, "non-empty strings, got ''"),
        (" ", None, "non-empty"),
        ("acme", [""], "non-empty"),
        ("acme", [None], "non-empty strings, got None"),
        (7, None, "non-empty strings, got 7"),
        ("acme", "handbook", r"got 'handbook'; write, for instance, \['handbook'\]"),
    ],
)
def test_a_scope_that_isolates_nothing_is_refused(
    tenant_id: object, kb_ids: object, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Scope(tenant_id, kb_ids)  # type: ignore[arg-type]


@given(SCOPES, SCOPES, METADATA)
def test_a_narrowed_scope_is_the_intersection_of_both(
    one: Scope, other: Scope, metadata: dict[str, object]
) -> None:
    seen = matches(one.condition, metadata) and matches(other.condition, metadata)
    try:
        narrowed = one.narrowed(other)
    except ScopeError:
        assert not seen
    else:
        assert matches(narrowed.condition, metadata) is seen


@given(SCOPES)
def test_a_scope_narrowed_by_nothing_or_itself_is_itself(scope: Scope) -> None:
    assert scope.narrowed(None) == scope
    assert scope.narrowed(scope) == scope


def test_a_node_is_put_into_one_tenant_and_one_knowledge_base() -> None:
    assert Scope("acme").metadata() == {"tenant_id": "acme"}
    assert Scope("acme", ["a"]).metadata() == {"tenant_id": "acme", "kb_id": "a"}
    assert Scope(kb_ids=["a"]).metadata() == {"kb_id": "a"}
    with pytest.raises(ConfigurationError, match="lives in one knowledge base"):
        Scope("acme", ["a", "b"]).metadata()


def test_principals_are_sorted_and_none_of_them_is_not_an_empty_list() -> None:
    assert Scope("acme", principals=["b", "a", "b"]) == Scope("acme", principals=("a", "b"))
    assert Scope("acme", principals=[]) != Scope("acme")
    hidden, shown = {"tenant_id": "acme", "allowed": ["a"]}, {"tenant_id": "acme"}
    for principals, expected in ((None, True), (["a", "c"], True), (["c"], False), ([], False)):
        condition = Scope("acme", principals=principals).condition
        assert matches(condition, hidden) is expected
        assert matches(condition, shown)
        assert not matches(condition, {**shown, "allowed": "a"}) or principals is None


@cases("principals", ["group:hr", 5, [""], [" "], [None], ["a\nb"], ["\ud800"]])
def test_principals_that_are_no_list_of_names_are_refused(principals: Any) -> None:
    with pytest.raises(ConfigurationError, match="principals must be a list of names"):
        Scope("acme", principals=principals)


@cases(
    ("one", "other", "both"),
    [(None, ["a"], ("a",)), (["a", "b"], ["b", "c"], ("b",)), ([], ["a"], ()), (["a"], [], ())],
)
def test_principals_are_only_narrowed(one: Any, other: Any, both: tuple[str, ...]) -> None:
    narrowed = Scope("acme", principals=one).narrowed(Scope(principals=other))
    assert narrowed == Scope("acme", principals=both)


def test_users_without_a_common_principal_have_no_common_scope() -> None:
    with pytest.raises(ScopeError, match="nothing in common"):
        Scope(principals=["user:ann"]).narrowed(Scope(principals=["user:bob"]))
