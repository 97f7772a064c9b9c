"""Milvus's expressions mean exactly what `matches` says, whatever stands in the metadata."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.engine.filters import Target
from llama_retrieval_ext.stores.milvus.filters import LANGUAGE, Expression
from llama_retrieval_ext.stores.milvus.llama_index_store import prefilters_of
from llama_retrieval_ext.stores.milvus.store import MilvusStore, open_milvus
from llama_retrieval_ext.text.normalization import spellings
from tests.cases import cases
from tests.stores.filters_contract import FiltersContract
from tests.stores.milvus.conftest import PLACES, place
from tests.stores.milvus.hard_metadata import ODD
from tests.stores.odd_metadata import EQ, HOSTILE, IN, examples, matching

pytestmark = pytest.mark.slow

NODES = ODD.nodes(300, seed=7)


@pytest.fixture(scope="module", params=PLACES)
def changing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MilvusStore]:
    with (
        place(request.param, request, tmp_path_factory.mktemp("lite")) as url,
        open_milvus(url) as store,
    ):
        yield store


@pytest.fixture(scope="module", params=PLACES)
def corpus(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MilvusStore]:
    with (
        place(request.param, request, tmp_path_factory.mktemp("lite")) as url,
        open_milvus(url) as store,
    ):
        store.add(NODES)
        yield store


class TestFilters(FiltersContract[MilvusStore]):
    odd, nodes = ODD, NODES

    def test_a_filter_as_deep_as_allowed_is_answered(self, corpus: MilvusStore) -> None:
        condition: Condition = Compare("k", EQ, "a")
        for number in range(14):
            condition = Not(AnyOf((condition, Compare("k", EQ, number))))
        assert self.found(corpus, [condition]) == [matching(NODES, condition)]

    def test_many_values_are_answered(self, corpus: MilvusStore) -> None:
        condition = Compare("k", IN, (*map(str, range(5000)), "a", 3))
        assert self.found(corpus, [condition]) == [matching(NODES, condition)]

    @pytest.mark.parametrize("group", [AnyOf, AllOf])
    def test_many_parts_are_answered(self, corpus: MilvusStore, group: type[AnyOf | AllOf]) -> None:
        how = EQ if group is AnyOf else FilterOperator.NE
        others = (Compare("other", how, value) for value in (*map(str, range(1000)), "a"))
        condition = group((Compare("k", how, "a"), *others))
        assert self.found(corpus, [condition]) == [matching(NODES, condition)]


def test_filters_nested_too_deeply_are_refused_before_anything_is_sent(store: MilvusStore) -> None:
    condition: Condition = Compare("k", EQ, "a")
    for _ in range(20):
        condition = Not(AllOf((condition, Compare("k", EQ, "b"))))
    with pytest.raises(UnsupportedFilterError, match="nested"):
        store.dense([1.0], Search(1, condition))


_TEXT = re.compile(r'"[^"]*"')
_NAME = r"(?:\w+|\$meta\[T\])"
_VALUE = r"(?:T|[-+.\w]+|\[T(?:, T)*\])"
_PART = rf"(?:G|{_NAME} (?:[=!]=|[<>]=?|like|in) {_VALUE})"
_INNERMOST = re.compile(r"\(([^()]*)\)")
_CLEAR = re.compile(rf"exists {_NAME}|not G|{_PART}(?: and {_PART})*|{_PART}(?: or {_PART})*")


def groups(expression: str) -> list[str]:
    """What stands in each pair of brackets: T for a text, G for what stands in further ones."""
    found: list[str] = []

    def taken(brackets: re.Match[str]) -> str:
        found.append(brackets[1])
        return "G"

    rest, count = _TEXT.sub("T", expression), 1
    while count:
        rest, count = _INNERMOST.subn(taken, rest)
    return [*found, *([] if rest == "G" else [rest])]


def choices_name_a_partition(expression: Expression) -> bool:
    """Whether the partition key stands somewhere below an `or`."""
    rest_of = _TEXT.sub("T", str(expression))
    while inner := _INNERMOST.search(rest_of):
        named = re.search(r"\b(?:tenant|PARTITION)\b", inner[1]) is not None
        if named and " or " in inner[1]:
            return True
        rest_of = (
            f"{rest_of[: inner.start()]}{'PARTITION' if named else 'G'}{rest_of[inner.end() :]}"
        )
    return False


def is_clear(expression: Expression) -> bool:
    return isinstance(expression, bool) or all(map(_CLEAR.fullmatch, groups(expression)))


@cases(
    "expression",
    [
        'exists a and a == "x"',
        'not a == "x"',
        'not (a == "x") and b == "y"',
        '(a == "x" and b == "y" or c == "z")',
    ],
)
def test_the_check_rejects_expressions_that_depend_on_precedence(expression: str) -> None:
    assert not is_clear(expression)


@examples(100)
@given(condition=ODD.conditions)
def test_conditions_do_not_depend_on_precedence_and_alternatives_name_no_partition(
    condition: Condition,
) -> None:
    assert is_clear(LANGUAGE.compile(condition))
    # A server would search that partition alone: https://github.com/milvus-io/milvus has it in
    # internal/util/exprutil/expr_checker.go, up to 2.6 at least.
    assert not choices_name_a_partition(LANGUAGE.compile(condition))
    assert is_clear(prefilters_of(lambda: ()).write(condition).expression)


def test_a_scope_names_its_partition() -> None:
    either = AnyOf((Compare("tenant_id", EQ, "b"), Compare("k", EQ, "x")))
    written = LANGUAGE.compile(AllOf((Scope("acme", ["handbook"]).condition, either)))
    assert str(written).startswith('(((tenant == "sacme") and (kb == "shandbook")) and (((exists ')
    assert choices_name_a_partition('((tenant == "sacme") or (exists s_k))')
    assert choices_name_a_partition('((exists s_k) or (not ((tenant == "sa") and (kb == "sb"))))')


@cases("filters", [None, MetadataFilters(filters=[MetadataFilter(key="k", value=1)])])
@cases("docs", [None, [], ["a.md", 'b" or "']])
@cases("nodes", [None, [], ["a", "b"]])
def test_targets_do_not_depend_on_precedence(
    nodes: list[str] | None, docs: list[str] | None, filters: MetadataFilters | None
) -> None:
    written = LANGUAGE.select(Target(node_ids=nodes, doc_ids=docs, filters=filters))
    assert written is None or is_clear(written)


@cases("group", [AnyOf, AllOf])
def test_no_chain_is_long(group: type[AnyOf | AllOf]) -> None:
    condition = group(tuple(Compare("k", EQ, f"x{number}") for number in range(3000)))
    written = LANGUAGE.compile(condition)
    assert isinstance(written, str)
    assert max(len(re.split(" and | or ", group)) for group in groups(written)) <= 32
    assert all(f'"x{number}"' in written for number in range(3000))


def test_a_negated_scope_does_not_depend_on_precedence() -> None:
    written = LANGUAGE.compile(Compare("tenant_id", FilterOperator.NE, "acme"))
    assert written == '(not (tenant == "sacme"))'


@given(text=st.one_of(st.sampled_from(HOSTILE), st.text()))
def test_a_value_in_an_expression_has_no_character_of_syntax(text: str) -> None:
    # A text that can be spelled in two ways in Unicode is compared with both.
    harmless, written = (str(LANGUAGE.compile(Compare("k", EQ, each))) for each in ("a", text))
    if len(spellings(text)) == 1:
        assert written.split('"')[0::2] == harmless.split('"')[0::2]
    assert len(written.split('"')[1::2]) == len(spellings(text))
    for quoted in written.split('"')[1::2]:
        assert not set(quoted) & set("'\\%_{}\n\r\t\x00")
    written.encode()


def test_ids_and_documents_are_quoted() -> None:
    assert (
        LANGUAGE.select(Target(node_ids=['"] or ["']))
        == '(id in ["\ue000\ue001\ue021] or [\ue000\ue001\ue021", '
        '"\ue000\ue001\ue021] or [\ue000\ue001\ue021\ue000\ue001\ue001second"])'
    )
    assert LANGUAGE.select(Target(node_ids=[])) is False
    assert LANGUAGE.select(Target()) is None
