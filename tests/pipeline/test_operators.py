"""What fits behind and beside what, what it makes, and what is said where it does not fit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from operator import or_, rshift
from typing import Any

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.indices.postprocessor import SimilarityPostprocessor
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import LongContextReorder
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext.errors import CompositionError, ConfigurationError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.pipeline.branches import Branches, Unfused, branches
from llama_retrieval_ext.pipeline.fusion import Fusion, FusionChain
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.stages import FanOut, Refine, Rewrite
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.selection import Top
from llama_retrieval_ext.testing.fakes import FakeRetriever, FixedRetriever
from tests.cases import each_case


@dataclass(frozen=True, slots=True)
class Say(Rewrite):
    word: str = "please"

    def rewrite(self, query: Query) -> Query:
        return Query(f"{query.query_str} {self.word}")


@dataclass(frozen=True, slots=True)
class Twice(FanOut):
    def fan_out(self, query: Query) -> list[Query]:
        return [query, Query(f"{query.query_str} again")]


a, b, c = (FixedRetriever([(name, 1.0)], name=name) for name in "abc")
retriever, other = FixedRetriever(name="retriever"), FixedRetriever(name="other")
foreign = FakeRetriever([("x", 0.5)])
postprocessor = SimilarityPostprocessor(similarity_cutoff=0.1)

# Several of each kind: alone, in a chain, and foreign.
PARTS: Mapping[str, tuple[object, ...]] = {
    "rewrite": (Say(), Say() >> Say("now")),
    "fan-out": (Twice(), Say() >> Twice()),
    "retriever": (a, Say() >> a >> Top(3), (a | b) >> RRF(), foreign),
    "leg": (Leg("slow", c, timeout_s=1.0), Leg("theirs", foreign)),
    "branches": (a | b, Say() >> (a | b), Say() >> Twice() >> (a | b)),
    "fusion": (RRF(), RRF() >> Top(3)),
    "refine": (Top(3), Top(3) >> Top(2), postprocessor),
}
FIT = {
    ("rewrite", "rewrite"): Rewrite,
    ("rewrite", "fan-out"): FanOut,
    ("rewrite", "retriever"): Retriever,
    ("rewrite", "branches"): Branches,
    ("fan-out", "retriever"): Branches,
    ("fan-out", "leg"): Branches,
    ("fan-out", "branches"): Branches,
    ("retriever", "refine"): Pipeline,
    ("branches", "fusion"): Retriever,
    ("fusion", "refine"): FusionChain,
    ("refine", "refine"): Refine,
}
SIDES = {"retriever", "leg", "branches"}
# Where neither part is ours, Python itself says that it knows no such operator.
THEIRS = (foreign, postprocessor, *PARTS["leg"])
NAMESPACE = {
    **globals(),
    "FakeRetriever": lambda _: foreign,
    "SimilarityPostprocessor": lambda _: postprocessor,
}


def pairs(*, fit: bool) -> list[tuple[object, object, str, str]]:
    return [
        (left, right, first, second)
        for first, second in product(PARTS, repeat=2)
        for left, right in product(PARTS[first], PARTS[second])
        if ((first, second) in FIT) is fit and not (left in THEIRS and right in THEIRS)
    ]


def needs_a_fusion(part: object) -> bool:
    return isinstance(part, Branches) and (bool(part.rewrites) or part.fan_out is not None)


def corrected(error: CompositionError) -> object:
    """What the expression at the end of the message evaluates to."""
    return eval(str(error).rpartition(": ")[2], NAMESPACE)


def is_right(made: object) -> bool:
    if isinstance(made, Retriever):
        made.retrieve("query")  # it also runs
    return isinstance(made, Retriever | Leg | Fusion | FusionChain | Refine | FanOut)


def test_what_fits_makes_the_kind_that_comes_of_it() -> None:
    for left, right, first, second in pairs(fit=True):
        if first == "fan-out" and needs_a_fusion(right):
            continue
        assert isinstance(rshift(left, right), FIT[first, second])


def test_what_does_not_fit_is_refused_with_what_to_write_instead() -> None:
    wrong = pairs(fit=False)
    assert len(wrong) > 100
    for left, right, _first, _second in wrong:
        with pytest.raises(CompositionError, match="cannot directly follow") as caught:
            rshift(left, right)
        assert " at 0x" not in str(caught.value)
        assert is_right(corrected(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    "right", [Twice() >> (a | b), Say() >> (a | b), Say() >> Twice() >> a, Twice() >> a], ids=repr
)
def test_a_fan_out_of_what_is_not_plain_is_refused_with_what_to_write_instead(
    right: Branches,
) -> None:
    with pytest.raises(CompositionError) as caught:
        Twice() >> right
    made = corrected(caught.value)
    assert isinstance(made, Branches)
    assert (made >> RRF()).retrieve("query")


def test_only_retrievers_stand_side_by_side() -> None:
    everything = [part for parts in PARTS.values() for part in parts]
    kinds = {id(part): kind for kind, parts in PARTS.items() for part in parts}
    refused = 0
    for left, right in product(everything, repeat=2):
        sides = {kinds[id(left)], kinds[id(right)]}
        if not sides & {"retriever", "branches"} or (left in THEIRS and right in THEIRS):
            continue  # neither of them knows "|"
        if sides <= SIDES and not (needs_a_fusion(left) or needs_a_fusion(right)):
            assert isinstance(or_(left, right), Branches)
            continue
        if foreign in (left, right) and not sides <= SIDES:
            continue
        with pytest.raises(CompositionError) as caught:
            or_(left, right)
        made = corrected(caught.value)
        assert is_right(made) or isinstance(made, Branches), str(caught.value)
        refused += 1
    assert refused > 50


@each_case("operator", [rshift, or_], ids=[">>", "|"])
@each_case("part", [a, a | b, a >> Top(1)], ids=repr)
def test_what_is_no_stage_is_none_of_our_business(
    operator: Callable[[object, object], object], part: object
) -> None:
    class Curious:
        def __rrshift__(self, left: object) -> object:
            return ("curious", left)

        __ror__ = __rrshift__

    assert operator(part, Curious()) == ("curious", part)
    with pytest.raises(TypeError, match="unsupported operand"):
        operator(part, 3)
    with pytest.raises(TypeError, match="unsupported operand"):
        operator(3, part)


def test_foreign_parts_stand_on_either_side() -> None:
    expected = ["x", "a"]
    near = FixedRetriever([("a", 0.4)], name="near")
    assert node_ids(((foreign | near) >> RRF()).retrieve("query")) == sorted(expected)
    assert node_ids(((near | foreign) >> RRF()).retrieve("query")) == sorted(expected)
    assert node_ids((branches(foreign, foreign) >> RRF()).retrieve("query")) == ["x"]
    assert node_ids((foreign >> Top(1)).retrieve("query")) == ["x"]
    assert node_ids((Say() >> foreign).retrieve("query")) == ["x"]
    assert foreign.calls[-1].query_str == "query please"
    assert node_ids((near >> SimilarityPostprocessor(similarity_cutoff=0.5)).retrieve("q")) == []
    assert node_ids((near >> postprocessor).retrieve("query")) == ["a"]
    assert node_ids((near >> (postprocessor >> Top(1))).retrieve("query")) == ["a"]
    assert node_ids((near >> (Top(1) >> LongContextReorder())).retrieve("query")) == ["a"]
    fused = (near | foreign) >> (RRF() >> postprocessor)
    assert node_ids(fused.retrieve("query")) == []


def test_foreign_parts_print_as_their_class() -> None:
    assert repr((foreign | a) >> RRF() >> postprocessor) == (
        "(FakeRetriever(...) | a) >> RRF() >> SimilarityPostprocessor(...)"
    )
    assert repr(foreign >> Top(1)) == "FakeRetriever(...) >> Top(k=1)"


EN = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])
ROWS = [
    ("a-en", 0.9, "text", {"tenant_id": "acme", "lang": "en"}),
    ("a-zh", 0.8, "text", {"tenant_id": "acme", "lang": "zh"}),
    ("g-en", 0.7, "text", {"tenant_id": "globex", "lang": "en"}),
]
tenants = FixedRetriever(ROWS, name="tenants")
SETTINGS: Mapping[str, tuple[Callable[[], Retriever], list[str]]] = {
    "a scope": (lambda: (tenants >> Top(9)).for_scope(Scope("globex")), ["g-en"]),
    "filters": (lambda: Pipeline(tenants, filters=EN), ["a-en", "g-en"]),
    "a limit": (lambda: Pipeline(tenants, top_k=1), ["a-en"]),
    "a scope of a fusion": (
        lambda: ((tenants | tenants) >> RRF()).for_scope(Scope("globex")),
        ["g-en"],
    ),
    "filters of a fusion": (
        lambda: FusionRetriever(tenants | tenants, RRF(), filters=EN),
        ["a-en", "g-en"],
    ),
    "a limit of a fusion": (lambda: FusionRetriever(tenants | tenants, RRF(), top_k=1), ["a-en"]),
}


@each_case(("make", "expected"), SETTINGS.values(), ids=SETTINGS)
def test_what_a_retriever_is_bound_to_holds_wherever_it_is_put(
    make: Callable[[], Retriever], expected: list[str]
) -> None:
    bound = make()
    for composed in (
        bound,
        bound >> Top(9),
        Say() >> bound,
        Say() >> bound >> Top(9),
        Say() >> (bound >> Top(9)),
        (bound | bound) >> RRF(),
        Twice() >> bound >> RRF() >> Top(9),
    ):
        assert node_ids(composed.retrieve("query")) == expected


def test_a_retriever_that_requires_a_scope_still_does_in_a_pipeline() -> None:
    closed = a >> Top(3)
    closed.requires_scope = True
    with pytest.raises(PermissionError):
        (closed >> Top(2)).retrieve("query")


def test_a_leg_keeps_its_limits_beside_others() -> None:
    slow = Leg("slow", c, timeout_s=1.0, weight=0.5, top_k=2, required=True)
    made = (slow | a) >> RRF()
    assert isinstance(made, FusionRetriever)
    assert made.legs[0] is slow
    assert [leg.name for leg in made.legs] == ["slow", "a"]
    fanned = Twice() >> slow
    assert fanned.legs == (slow,)


def test_repeated_names_of_legs_are_numbered() -> None:
    made = branches(a, a, Leg("a", b), a=c)
    assert [leg.name for leg in made.legs] == ["a", "a#2", "a#3", "a#4"]
    assert [leg.retriever for leg in made.legs] == [a, a, b, c]


def test_legs_take_the_names_they_are_given() -> None:
    limited = Leg("first", a, timeout_s=2.0)
    made = branches(dense=limited, bm25=b)
    assert [leg.name for leg in made.legs] == ["dense", "bm25"]
    assert [leg.timeout_s for leg in made.legs] == [2.0, None]
    assert made.legs[0].breaker is limited.breaker


def test_no_branches_are_refused() -> None:
    with pytest.raises(CompositionError, match="at least one"):
        branches()


def deep() -> Retriever:
    inner = Say() >> (a | b) >> RRF(k=1) >> Top(5)
    return (inner | foreign | a) >> RRF() >> Top(3)


def test_the_outline_is_the_tree() -> None:
    assert deep().outline() == (
        "Top(k=3)\n"
        "└─ RRF()\n"
        "   ├─ Top(k=5)\n"
        "   │  └─ Say(word='please') >> RRF(k=1)\n"
        "   │     ├─ a\n"
        "   │     └─ b\n"
        "   ├─ FakeRetriever\n"
        "   └─ a"
    )


def test_the_outline_shows_a_leg_that_stands_twice() -> None:
    assert ((a | a) >> RRF()).outline() == "RRF()\n├─ a\n└─ a"


@pytest.mark.parametrize("method", ["search", "asearch", "explain", "stream", "retrieve_many"])
def test_retriever_methods_of_branches_ask_for_a_fusion(method: str) -> None:
    with pytest.raises(AttributeError, match=rf"\(\(a \| b\) >> RRF\(\)\)\.{method}"):
        getattr(a | b, method)


@pytest.mark.parametrize("unfused", [a | b, Say("please") >> (a | b)], ids=repr)
def test_what_waits_for_a_fusion_says_so_when_it_is_asked(unfused: Unfused) -> None:
    engine = RetrieverQueryEngine.from_args(unfused, llm=MockLLM())  # type: ignore[arg-type]
    with pytest.raises(
        AttributeError, match=r"no retriever yet .*put a Fusion behind it: .*>> RRF\(\)"
    ):
        engine.retrieve(QueryBundle("query"))
    assert not hasattr(unfused, "aretrieve")
    with pytest.raises(AttributeError, match="object has no attribute 'something'"):
        unfused.something  # type: ignore[attr-defined]  # noqa: B018


def test_mermaid_has_the_same_tree() -> None:
    assert deep().mermaid() == (
        "flowchart BT\n"
        '    n1["Top(k=3)"]\n'
        '    n2["RRF()"]\n'
        '    n3["Top(k=5)"]\n'
        "    n4[\"Say(word='please') >> RRF(k=1)\"]\n"
        '    n5["a"]\n'
        "    n5 --> n4\n"
        '    n7["b"]\n'
        "    n7 --> n4\n"
        "    n4 --> n3\n"
        "    n3 --> n2\n"
        '    n11["FakeRetriever"]\n'
        "    n11 --> n2\n"
        '    n13["a"]\n'
        "    n13 --> n2\n"
        "    n2 --> n1"
    )


def test_mermaid_escapes_quotes() -> None:
    assert '["say #quot;so#quot;"]' in FixedRetriever(name='say "so"').mermaid()


def test_a_composite_is_a_retriever_of_llama_index() -> None:
    assert isinstance(deep(), BaseRetriever)


def test_hits_of_a_foreign_retriever_without_scores_get_some_in_their_order() -> None:
    unscored = FakeRetriever([("b", None), ("a", None), ("c", None)])
    hits = (unscored >> Top(2)).retrieve("query")
    assert node_ids(hits) == ["b", "a"]
    assert all(isinstance(hit.score, float) for hit in hits)


@pytest.mark.parametrize("scope", [None, "acme", {"tenant_id": "acme"}])
def test_a_retriever_is_bound_to_a_scope_or_not_at_all(scope: Any) -> None:
    retriever = FixedRetriever([("a", 0.9)])
    with pytest.raises(ConfigurationError, match="write Scope"):
        retriever.for_scope(scope)


@pytest.mark.parametrize("queries", ["annual leave", Query("annual leave")])
def test_one_query_is_not_taken_for_a_list_of_its_letters(queries: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a list"):
        FixedRetriever([("a", 0.9)]).retrieve_many(queries)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Say() >> tenants,
        lambda: Say() >> Say() >> tenants,
        lambda: Twice() >> tenants >> RRF(),
    ],
    ids=["rewrite", "rewrites", "fan-out"],
)
def test_a_query_made_anew_cannot_widen_what_was_asked(make: Callable[[], Retriever]) -> None:
    asked = Query("query", scope=Scope("acme"), filters=EN)
    assert node_ids(make().retrieve(asked)) == ["a-en"]
    assert node_ids(make().for_scope(Scope("globex")).retrieve("query")) == ["g-en"]
    assert len(make().retrieve("query")) == 3


def test_a_query_made_anew_still_asks_for_as_many_hits() -> None:
    many = FixedRetriever([(f"n{place}", 1.0) for place in range(30)], top_k=10)
    assert len((Say() >> many).retrieve(Query("query", top_k=20))) == 20


class Nothing(Rewrite):
    def rewrite(self, query: Query) -> Query:
        return None  # type: ignore[return-value]


def test_a_rewrite_that_gives_no_query_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="replace"):
        (Nothing() >> tenants).retrieve("query")
