"""Parallel retrievers, which a fusion must follow."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext.arguments import arguments_of, value_expression
from llama_retrieval_ext.errors import CompositionError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.pipeline.chains import FusionChain
from llama_retrieval_ext.pipeline.fusion import Fusion, check_min_success
from llama_retrieval_ext.pipeline.stages import FanOut, Operand, Rewrite
from llama_retrieval_ext.pipeline.tree import name_of

if TYPE_CHECKING:
    from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unfused(Operand):
    """Legs whose rankings are not yet fused; not a retriever, so only a `Fusion` can follow.

    Also the type of `Branches` after a rewrite or fan-out, which does not support ``|``.
    """

    legs: tuple[Leg, ...]
    rewrites: tuple[Rewrite, ...] = ()
    fan_out: FanOut | None = None
    min_success: int | None = None

    def __post_init__(self) -> None:
        if not self.legs:
            raise CompositionError(
                "branches need at least one retriever: branches(dense=a, bm25=b)"
            )
        if self.min_success is not None:
            check_min_success(self.min_success, legs=len(self.legs))

    if TYPE_CHECKING:

        @overload
        def __rshift__(self, other: Fusion) -> "FusionRetriever": ...
        @overload
        def __rshift__(self, other: FusionChain) -> "Pipeline": ...
        def __rshift__(self, other: object) -> object: ...

    else:  # a type checker reports this earlier

        def __getattr__(self, name: str) -> object:
            """Raise an error about the missing fusion if a retriever's attribute is used."""
            from llama_retrieval_ext.pipeline.retriever import Retriever  # noqa: PLC0415 - a circle

            if not hasattr(Retriever, name):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise AttributeError(
                f"{self!r} is no retriever yet and has no {name!r}; "
                f"put a Fusion behind it: ({self!r} >> RRF()).{name}"
            )

    def __repr__(self) -> str:
        before = [repr(stage) for stage in self.rewrites]
        before += [] if self.fan_out is None else [repr(self.fan_out)]
        return " >> ".join([*before, _side_by_side(self.legs, self.min_success)])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Branches(Unfused):
    """Parallel retrievers: ``a | b``."""

    if TYPE_CHECKING:

        def __or__(self, other: "BaseRetriever | Leg | Branches") -> "Branches": ...
        def __ror__(self, other: "BaseRetriever | Leg") -> "Branches": ...


def branches(
    *retrievers: BaseRetriever | Leg, min_success: int | None = None, **named: BaseRetriever | Leg
) -> Branches:
    """Return parallel retrievers; needed for two of another package, and to name legs.

    A failed leg is left out and the answer is marked degraded. The query fails if a leg with
    ``Leg(required=True)`` fails, or if fewer than ``min_success`` legs answer.

    Args:
        retrievers: Retrievers or legs under their own names; repeated names are numbered.
        min_success: Number of legs that must answer, or the query fails; None for the fusion's
            number, by default 1.
        named: Retrievers or legs under the given names.

    Raises:
        CompositionError: No retriever is given.
        ConfigurationError: ``min_success`` is below 0 or above the number of legs.
    """
    return Branches(unique_legs([*retrievers, *named_legs(named)]), min_success=min_success)


def named_legs(retrievers: Mapping[str, BaseRetriever | Leg]) -> list[Leg]:
    """Return legs under the names of a mapping."""
    return [leg_of(part, name=name) for name, part in retrievers.items()]


def chosen_names(legs: Sequence[Leg]) -> list[str | None]:
    """Return the given name of each leg; None if it is named after its retriever."""
    names = [leg.name for leg in unique_legs(leg.retriever for leg in legs)]
    return [None if leg.name == name else leg.name for leg, name in zip(legs, names, strict=True)]


def _side_by_side(legs: Sequence[Leg], min_success: int | None) -> str:
    """Return legs as an expression: with ``|``, or with `branches` if ``|`` loses arguments."""
    enough = [] if min_success is None else [f"min_success={min_success}"]
    is_plain = all(arguments_of(leg).keys() == {"name", "retriever"} for leg in legs)
    if is_plain and not any(chosen_names(legs)):
        inside = [value_expression(leg.retriever) for leg in legs]
        return f"branches({', '.join([*inside, *enough])})" if enough else f"({' | '.join(inside)})"
    if is_plain and all(leg.name.isidentifier() for leg in legs):
        inside = [f"{leg.name}={value_expression(leg.retriever)}" for leg in legs]
    else:
        inside = [repr(leg) for leg in legs]
    return f"branches({', '.join([*inside, *enough])})"


def unique_legs(parts: Iterable[BaseRetriever | Leg]) -> tuple[Leg, ...]:
    """Return legs of retrievers, under unique names: ``vector``, ``vector#2``, ..."""
    legs: list[Leg] = []
    taken: set[str] = set()
    for part in parts:
        leg = part if isinstance(part, Leg) else leg_of(part, name=name_of(part))
        name, number = leg.name, 2
        while name in taken:
            name, number = f"{leg.name}#{number}", number + 1
        taken.add(name)
        legs.append(leg_of(leg, name=name))
    return tuple(legs)


def leg_of(part: BaseRetriever | Leg, *, name: str) -> Leg:
    """Return a leg of the retriever, or the given leg, under this name."""
    if not isinstance(part, Leg):
        return Leg(name, part)
    return part if part.name == name else replace(part, name=name)
