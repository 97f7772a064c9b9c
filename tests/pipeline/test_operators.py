"""The operators >> and |: what they make of two parts, and what they advise where none fits."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from operator import or_, rshift
from typing import Any

import pytest
from llama_index.core.embeddings.mock_embed_model import MockEmbedding
from llama_index.core.indices.postprocessor import SimilarityPostprocessor
from llama_index.core.postprocessor import LongContextReorder

from llama_retrieval_ext import RRF, Hit, Query, Retriever, Top
from llama_retrieval_ext.errors import CompositionError
from llama_retrieval_ext.execution import Leg
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline import FanOut, Fusion, Refine, Rewrite
from llama_retrieval_ext.pipeline.branches import Branches, branches
from llama_retrieval_ext.pipeline.chains import FusionChain
from llama_retrieval_ext.pipeline.pipeline import Pipeline
from llama_retrieval_ext.testing import FakeRetriever, FixedRetriever
from tests.cases import cases
from tests.pipeline.parts import Each, Say
from tests.searching import Searched

a, b, c = (FixedRetriever([(name, 1.0)], name=name) for name in "abc")
retriever, other = FixedRetriever(name="retriever"), FixedRetriever(name="other")
foreign = FakeRetriever([("x", 0.5)])
postprocessor = SimilarityPostprocessor(similarity_cutoff=0.1)

# Several of each kind: alone, in a chain, and foreign.
PARTS: Mapping[str, tuple[object, ...]] = {
    "rewrite": (Say(), Say() >> Say("now")),
    "fan-out": (Each(("", "again")), Say() >> Each(("", "again"))),
    "retriever": (a, Say() >> a >> Top(3), (a | b) >> RRF(), foreign),
    "leg": (Leg("slow", c, timeout_s=1.0), Leg("theirs", foreign)),
    "branches": (a | b, Say() >> (a | b), Say() >> Each(("", "again")) >> (a | b)),
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


def test_parts_that_fit_make_the_documented_kind() -> None:
    for left, right, first, second in pairs(fit=True):
        if first == "fan-out" and needs_a_fusion(right):
            continue
        assert isinstance(rshift(left, right), FIT[first, second])


@pytest.mark.slow
def test_parts_that_do_not_fit_are_refused_with_a_working_correction() -> None:
    wrong = pairs(fit=False)
    assert len(wrong) > 100
    for left, right, _first, _second in wrong:
        with pytest.raises(CompositionError, match="cannot directly follow") as caught:
            rshift(left, right)
        assert " at 0x" not in str(caught.value)
        assert is_right(corrected(caught.value)), str(caught.value)


@cases(
    "right",
    [
        Each(("", "again")) >> (a | b),
        Say() >> (a | b),
        Say() >> Each(("", "again")) >> a,
        Each(("", "again")) >> a,
    ],
)
def test_a_fan_out_before_rewrites_is_refused_with_a_working_correction(right: Branches) -> None:
    with pytest.raises(CompositionError) as caught:
        Each(("", "again")) >> right
    made = corrected(caught.value)
    assert isinstance(made, Branches)
    assert (made >> RRF()).retrieve("query")


@pytest.mark.slow
def test_only_retrievers_can_be_put_side_by_side() -> None:
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


def test_legs_that_no_retriever_stands_beside_are_refused_with_a_working_correction() -> None:
    slow, theirs = PARTS["leg"]
    for left, right in ((slow, theirs), (slow, slow), (slow, foreign), (foreign, theirs)):
        with pytest.raises(CompositionError, match=r"a Leg has \| only with") as caught:
            or_(left, right)
        assert is_right(corrected(caught.value))
    with pytest.raises(TypeError, match="unsupported operand"):
        or_(slow, 3)


@cases("operator", [rshift, or_])
@cases("part", [a, a | b, a >> Top(1)])
def test_operators_of_other_classes_are_left_to_python(
    operator: Callable[[object, object], object], part: object
) -> None:
    class WithOperators:
        def __rrshift__(self, left: object) -> object:
            return ("other", left)

        __ror__ = __rrshift__

    assert operator(part, WithOperators()) == ("other", part)
    with pytest.raises(TypeError, match="unsupported operand"):
        operator(part, 3)
    with pytest.raises(TypeError, match="unsupported operand"):
        operator(3, part)


def test_parts_of_llama_index_can_stand_on_either_side() -> None:
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


leaves = FixedRetriever(
    [("a", 0.9, "travel"), ("b", 0.8, "annual leave"), ("c", 0.7, "sick leave")], name="leaves"
)
# Of no known type: a type checker would refuse what these tests write.
either: Any = leaves


def laws(query: Query, hits: Sequence[Hit]) -> list[Hit]:
    return [hit for hit in hits if query.query_str in hit.text]


def test_a_function_after_a_retriever_is_a_refinement(searched: Searched) -> None:
    result = searched(leaves >> laws >> (lambda hits: hits[1:]), "leave")
    assert node_ids(result.hits) == ["c"]
    assert repr(leaves >> laws >> Top(1)) == "leaves >> laws >> Top(k=1)"
    assert repr(leaves >> partial(laws, Query("annual"))) == "leaves >> laws"
    fused = (leaves | leaves) >> RRF() >> laws
    assert node_ids(searched(fused, "annual").hits) == ["b"]
    assert node_ids((leaves >> (laws >> Top(1))).retrieve("leave")) == ["b"]


@cases(
    ("compose", "message"),
    [
        (lambda: str.upper >> either, "a function is a refinement, which follows a retriever"),
        (lambda: either >> (lambda a, b, c: a), r"takes \(query, hits\) or \(hits\)"),
        (lambda: either >> (lambda: [1]), r"takes \(query, hits\) or \(hits\)"),
        (lambda: either >> asyncio.sleep, "async function"),
        (lambda: either >> Top, r"Top is a class.*write Top\(...\)"),
        (lambda: (either | either) >> laws, "put a Fusion between them"),
        (lambda: either | laws, "only retrievers can be combined by"),
    ],
)
def test_a_function_in_another_place_is_refused_with_advice(
    compose: Callable[[], object], message: str
) -> None:
    with pytest.raises(CompositionError, match=message):
        compose()


def test_a_callable_object_that_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        leaves >> MockEmbedding(embed_dim=2)  # type: ignore[operator]
