"""Types of parameters, and the check of values against them that constructors and files share.

A part declares each parameter once, as ``top_k: Count | None = None``. Its constructor, its
messages, configuration files, the JSON Schema and tuning all read that type.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, is_dataclass
from enum import EnumType
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    Union,
    get_args,
    get_origin,
)

from llama_retrieval_ext.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Range:
    """Range of a number, in an ``Annotated`` type; ``unit`` says what is counted."""

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf
    unit: str = ""

    def __contains__(self, number: float) -> bool:
        return self.least <= number <= self.most and self.above < number < self.below

    def __str__(self) -> str:
        unit = f"{self.unit} " if self.unit else ""
        if math.isfinite(self.least) and math.isfinite(self.most):
            return f"{unit}between {self.least:g} and {self.most:g}"
        limits = {
            "of at least": self.least,
            "above": self.above,
            "at most": self.most,
            "below": self.below,
        }
        words = [f"{word} {limit}" for word, limit in limits.items() if math.isfinite(limit)]
        return unit + " and ".join(words)


class Advice(str):
    """What to write instead of a wrong value, in an ``Annotated`` type."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Check:
    """Function that checks a whole argument in place of its type, in an ``Annotated`` type."""

    function: Callable[[Any], object]


Count: TypeAlias = Annotated[int, Range(least=1)]
WholeNumber: TypeAlias = Annotated[int, Range(least=0)]
# A part of a whole: with or without nothing.
Share: TypeAlias = Annotated[float, Range(least=0, most=1)]
Portion: TypeAlias = Annotated[float, Range(above=0, most=1)]
Weight: TypeAlias = Annotated[float, Range(least=0)]
FieldWeights: TypeAlias = dict[str, Weight]
Seconds: TypeAlias = Annotated[float, Range(above=0, unit="of seconds")]
TimeLimit: TypeAlias = Annotated[Seconds | None, Advice("for no limit leave it out")]

Path: TypeAlias = tuple[str | int, ...]
IsA: TypeAlias = Callable[[Any, Any], bool]
Fit: TypeAlias = Callable[..., "Misfit | None"]
_UNIONS: Final = (Union, UnionType)
_INTEGER: Final = Annotated[int, Range(most=sys.maxsize)]  # no engine and no list supports more
_WORDS: Final[Mapping[Any, str]] = {int: "a whole number", float: "a number", NoneType: "None"}
# How to get an object of LlamaIndex's classes, by their names.
_ADVICE: Final[Mapping[str, str]] = {
    "BaseDocumentStore": "pass a LlamaIndex docstore, or the StorageContext that has one",
    "BaseEmbedding": "pass a LlamaIndex embedding model; resolve_embed_model(name) makes one",
    "BaseRetriever": "pass a LlamaIndex retriever; an index has as_retriever()",
    "LLM": "pass a LlamaIndex LLM, or a CustomLLM that calls your function",
}


class Misfit(NamedTuple):
    """Value, in an argument, that its declared type does not have."""

    path: Path
    value: object
    hint: Any

    def message(self, name: str) -> str:
        """Return the message for the argument of this name."""
        for key in self.path:
            name = f"{name} of {key!r}" if isinstance(key, str) else f"each of {name}"
        advice = "".join(f"; {words}" for words in _advice(self.hint))
        return f"{name} must be {expected(self.hint)}, got {self.value!r}{advice}"


def arms_of(hint: Any) -> Iterator[Any]:  # noqa: ANN401 - a type, or what typing has for one
    """Yield the members of a union, or the type alone."""
    if get_origin(hint) in _UNIONS:
        for arm in get_args(hint):
            yield from arms_of(arm)
    else:
        yield hint


def expected(hint: Any) -> str:  # noqa: ANN401, PLR0911 - a type
    """Return what a value of a type is, in words that follow "must be".

    Examples:
        >>> expected(Count | None), expected(Literal["a", "b"]), expected(Sequence[str])
        ('a whole number of at least 1 or None', "one of ['a', 'b']", 'a list of str')
        >>> expected(str | Callable[[str], str])
        'of type str or a function'

    """
    arms = list(arms_of(hint))
    if len(arms) > 1:
        return " or ".join(dict.fromkeys(map(expected, arms)))
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        ranges = [str(note) for note in inside[1:] if isinstance(note, Range)]
        return " ".join([expected(inside[0]), *ranges])
    if origin is Literal:
        return f"one of {list(inside)}"
    if origin is Callable:
        return "a function"
    if isinstance(hint, EnumType):
        return f"one of {', '.join(map(str, hint))}"
    if isinstance(origin, type) and issubclass(origin, Iterable):
        if issubclass(origin, Mapping):
            return f"a mapping of {' to '.join(map(_name, inside))}"
        return f"a {'tuple' if origin is tuple else 'list'} of {_name(inside[0])}"
    return _WORDS.get(hint) or f"of type {_name(hint)}"


def _name(hint: Any) -> str:  # noqa: ANN401 - a type
    arms = list(arms_of(hint))
    if len(arms) > 1:
        return " | ".join(map(_name, arms))
    if get_origin(hint) is Annotated:
        return _name(get_args(hint)[0])
    return expected(hint) if get_args(hint) else getattr(hint, "__name__", str(hint))


def _advice(hint: Any) -> Iterator[str]:  # noqa: ANN401 - a type
    """Yield what to pass for a type: its own advice, or that for its class."""
    arms = [arm for arm in arms_of(hint) if arm is not NoneType]
    for arm in arms:
        if get_origin(arm) is Annotated:
            yield from (note for note in get_args(arm)[1:] if isinstance(note, Advice))
        name = getattr(arm, "__name__", "")
        if name in _ADVICE:
            yield _ADVICE[name]
        elif arms == [arm] and is_dataclass(arm):
            yield f"write {name}(...)"


def fit_of(hint: Any) -> Fit:  # noqa: ANN401 - a type
    """Return the function that returns the first value in an argument that a type does not have.

    It is made once for a parameter, and returns None for what fits. Types that ``isinstance``
    cannot check fit. A `Check` raises its own `ConfigurationError`.
    """
    arms = list(arms_of(hint))
    if len(arms) > 1:
        return _fit_of_union(hint, arms)
    if get_origin(hint) is Annotated:
        return _fit_of_annotated(hint)
    has_type, items_of = _type_test(hint), _items_of(hint)

    def fit(value: Any, is_a: IsA = isinstance) -> Misfit | None:  # noqa: ANN401
        if not has_type(value, is_a):
            is_large = hint is int and isinstance(value, int) and value > sys.maxsize
            return Misfit((), value, _INTEGER if is_large else hint)
        if items_of is None or not isinstance(value, Iterable):
            return None
        pairs, inside = items_of
        for key, item in pairs(value):
            problem = inside(item, is_a)
            if problem is not None:
                return problem._replace(path=(key, *problem.path))
        return None

    return fit


def misfit(value: Any, hint: Any, is_a: IsA = isinstance) -> Misfit | None:  # noqa: ANN401
    """Return the first value in an argument that a type does not have; None if it fits."""
    return fit_of(hint)(value, is_a)


def check_arguments(part: object, arguments: Mapping[str, object], fits: Mapping[str, Fit]) -> None:
    """Raise `ConfigurationError` for the first argument of a part that its type does not have."""
    for name, value in arguments.items():
        problem = fits[name](value) if name in fits else None
        if problem is not None:
            named = arguments.get("name")
            call = f"({named!r})" if isinstance(named, str) else "()"
            raise ConfigurationError(f"{type(part).__name__}{call}: {problem.message(name)}")


def is_number(value: object) -> bool:
    """Return whether a value is a finite number; False for booleans.

    Examples:
        >>> is_number(0.5), is_number("0.5"), is_number(math.nan)
        (True, False, False)

    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that is too large for a float
        return False


def _fit_of_union(hint: Any, arms: Sequence[Any]) -> Fit:  # noqa: ANN401
    fits = [fit_of(arm) for arm in arms if arm is not NoneType]
    has_none = len(fits) < len(arms)

    def fit(value: Any, is_a: IsA = isinstance) -> Misfit | None:  # noqa: ANN401
        if value is None and has_none:
            return None
        deepest = Misfit((), value, hint)
        for arm in fits:
            problem = arm(value, is_a)
            if problem is None:
                return None
            if len(problem.path) > len(deepest.path) or problem.hint is _INTEGER:
                deepest = problem
        return deepest

    return fit


def _fit_of_annotated(hint: Any) -> Fit:  # noqa: ANN401
    kind, *notes = get_args(hint)
    inner = fit_of(kind)
    checks = [note.function for note in notes if isinstance(note, Check)]
    ranges = [note for note in notes if isinstance(note, Range)]
    advice = [note for note in notes if isinstance(note, Advice)]

    def fit(value: Any, is_a: IsA = isinstance) -> Misfit | None:  # noqa: ANN401
        for check in checks:
            check(value)
            return None
        problem = inner(value, is_a)
        if problem is None:
            return None if all(value in limits for limits in ranges) else Misfit((), value, hint)
        if not problem.path and problem.hint is not _INTEGER:
            return problem._replace(hint=hint)
        return problem._replace(hint=Annotated[(problem.hint, *advice)]) if advice else problem

    return fit


def _type_test(hint: Any) -> Callable[[Any, IsA], bool]:  # noqa: ANN401
    origin, inside = get_origin(hint), get_args(hint)
    kind = NoneType if hint is None else origin or hint
    if origin is Literal:
        words = [(type(word), word) for word in inside]
        return lambda value, _: (type(value), value) in words
    if kind is object or not isinstance(kind, type):
        return lambda *_: True
    if hint is float:
        return lambda value, _: is_number(value)
    if hint is int:
        return lambda value, _: (
            isinstance(value, int) and type(value) is not bool and value <= sys.maxsize
        )
    # A text is a sequence, but no list of texts.
    is_collection = kind is not str and issubclass(kind, Iterable)

    def has_type(value: Any, is_a: IsA) -> bool:  # noqa: ANN401
        try:
            is_text = is_collection and isinstance(value, str | bytes)
            return not is_text and is_a(value, kind)
        except TypeError:
            return True

    return has_type


def _items_of(hint: Any) -> tuple[Callable[[Any], Iterable[tuple[Any, Any]]], Fit] | None:  # noqa: ANN401
    """Return the function for the keys and items of a collection, and the fit of each item."""
    origin, inside = get_origin(hint), get_args(hint)
    if not isinstance(origin, type) or not inside:
        return None
    if issubclass(origin, Mapping):
        return lambda value: value.items(), fit_of(inside[1])
    is_homogeneous = origin is not tuple or inside[-1] is Ellipsis
    if issubclass(origin, Sequence | AbstractSet) and is_homogeneous:
        return enumerate, fit_of(inside[0])
    return None
