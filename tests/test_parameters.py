"""One declaration of a part: its constructor, its messages and its types agree."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from llama_retrieval_ext.checks import Part
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.parameters import (
    Advice,
    Check,
    Count,
    Portion,
    Range,
    Seconds,
    Share,
    TimeLimit,
    expected,
    misfit,
)
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.cases import cases

Word = Literal["a", "b"]
Mixed = Sequence[int] | Mapping[str, Share] | None


@cases(
    ("hint", "right", "wrong"),
    [
        (Count, [1, 10**9], [0, True, 1.0, "1", None, 10**30]),
        (Share, [0, 0.5, 1], [-0.1, 1.1, True, float("nan"), "0.5"]),
        (Portion, [0.1, 1], [0, 1.01]),
        (Seconds, [0.1, 60], [0, float("inf")]),
        (TimeLimit, [None, 1], [0, "1"]),
        (float, [1, 0.5, -3], [float("inf"), 10**400, False]),
        (bool, [True], [1, None]),
        (str, ["x", ""], [b"x", None, 1]),
        (Word, ["a"], ["c", ["a"], None]),
        (Literal[1], [1], [True, 1.0]),
        (Normalisation, [Normalisation.Z_SCORE], ["Z_SCORE"]),
        (Sequence[str], [["a"], ("a",), []], ["a", [1], {"a": 1}, None]),
        (tuple[Count, ...], [(1, 2), ()], [[1], (0,)]),
        (Mapping[str, Count], [{"a": 1}, {}], [{"a": 0}, [1]]),
        (Mixed, [[1], {"a": 0.5}, None], [["a"], {"a": 2}, "a"]),
        (Tokenizer | None, [Tokenizer(), None], ["a"]),
        (Annotated[int, Check(lambda _: None)], ["anything"], []),
        (Any, ["anything"], []),
        ("a class that only type checkers import", ["anything"], []),
    ],  # the text of a function differs between the processes of a run
)
def test_a_value_fits_a_type_or_does_not(
    hint: Any, right: Sequence[Any], wrong: Sequence[Any]
) -> None:
    assert [value for value in right if misfit(value, hint) is not None] == []
    assert [value for value in wrong if misfit(value, hint) is None] == []


@cases(
    ("value", "hint", "message"),
    [
        (0, Count, "x must be a whole number of at least 1, got 0"),
        (10**19, Count, f"x must be a whole number at most {2**63 - 1}, got {10**19}"),
        (2, Share, "x must be a number between 0 and 1, got 2"),
        (0, Portion | None, "x must be a number above 0 and at most 1 or None, got 0"),
        (0, TimeLimit, "x must be a number of seconds above 0 or None, got 0; for no limit leave"),
        ("c", Word, "x must be one of ['a', 'b'], got 'c'"),
        ({"a": 2}, Mixed, "x of 'a' must be a number between 0 and 1, got 2"),
        (["b"], Mixed, "each of x must be a whole number, got 'b'"),
        (7, Mixed, "x must be a list of int or a mapping of str to float or None, got 7"),
        ("m", FakeEmbedding, "x must be of type FakeEmbedding, got 'm'"),
        ({}, Tokenizer, "x must be of type Tokenizer, got {}"),
        (0, Annotated[int, Range(least=2, below=9), Advice("four is usual")], "; four is usual"),
    ],
)
def test_the_message_says_what_the_type_expects(value: Any, hint: Any, message: str) -> None:
    found = misfit(value, hint)
    assert found is not None
    assert message in found.message("x")


@dataclass(frozen=True, slots=True, repr=False)
class Sample(Part):
    """A part of an application."""

    size: Count
    name: str = "sample"
    share: Share = 0.5


def test_a_part_of_an_application_is_checked_by_its_declaration_alone() -> None:
    assert repr(Sample(2, share=1)) == "Sample(size=2, share=1)"
    wrong: list[tuple[Callable[[], Sample], str]] = [
        (lambda: Sample(0), r"Sample\(\): size must be a whole number of at least 1, got 0"),
        (lambda: Sample(1, "own", 3), r"Sample\('own'\): share must be a number between 0 and 1"),
        (lambda: Sample(1, shrae=0.5), "write share=0.5"),  # type: ignore[call-arg]
    ]
    for make, message in wrong:
        with pytest.raises(ConfigurationError, match=message):
            make()


def test_numbers_are_described_by_their_range() -> None:
    assert expected(Annotated[float, Range(least=0, below=1)]) == (
        "a number of at least 0 and below 1"
    )
    assert expected(Annotated[float, Range(above=0, below=1)]) == "a number above 0 and below 1"
