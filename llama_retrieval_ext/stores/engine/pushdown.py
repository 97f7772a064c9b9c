"""Pushdown: native fusions of engines, and the check whether a fusion is native."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.formulas.fusion import proportions
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum

# The legs of a hybrid search, as weights and scales name them.
LEGS: Final = ("vector", "keyword")
_MOST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeFusion:
    """A fusion that an engine computes with exactly our formula.

    Attributes:
        kind: Our fusion class with that formula.
        scales: Normalisation of vector and keyword scores; None for a fusion by rank.
        least_k: Smallest constant ``k`` that the engine accepts for a fusion by rank.
        most_k: Largest constant ``k``; it is a whole number.
        equal_weights: Whether both legs must have the same weight.
        whole_keyword_leg: Whether the engine fuses all keyword hits, while our fusion uses only
            the best candidates.
    """

    kind: type[Fusion]
    scales: tuple[Normalisation, Normalisation] | None = None
    least_k: int = 0
    most_k: int = _MOST
    equal_weights: bool = False
    whole_keyword_leg: bool = False

    def is_as(self, fusion: Fusion, weights: Sequence[float]) -> bool:
        """Return whether the engine computes this fusion with these leg weights."""
        formula = type(fusion)
        if not isinstance(fusion, self.kind) or formula.shares is not self.kind.shares:
            return False
        if formula.combine is not self.kind.combine or min(weights) <= 0:
            return False
        if self.equal_weights and len(set(weights)) > 1:
            return False
        if isinstance(fusion, RRF):
            return self.least_k <= fusion.k <= self.most_k and float(fusion.k).is_integer()
        return isinstance(fusion, WeightedSum) and scales_of(fusion) == self.scales

    def __str__(self) -> str:
        parts = []
        if self.scales is not None:
            vector, keyword = self.scales
            both = f"{{'vector': {vector!r}, 'keyword': {keyword!r}}}"
            parts.append(f"normalise={vector!r}" if vector is keyword else f"normalise={both}")
        elif (self.least_k, self.most_k) != (0, _MOST):
            parts.append(f"k=a whole number from {self.least_k} to {self.most_k}")
        else:
            parts.append("k=a whole number")
        weights = "equal weights" if self.equal_weights else "any weights above 0"
        return f"{self.kind.__name__}({', '.join(parts)}) with {weights}"


@dataclass(frozen=True, slots=True)
class FusedSearch:
    """A fusion for an engine to compute."""

    fusion: Fusion
    weights: tuple[float, float]
    candidates: int

    @property
    def by_rank(self) -> RRF | None:
        """The fusion if it is by rank, else None."""
        return self.fusion if isinstance(self.fusion, RRF) else None

    @property
    def proportions(self) -> tuple[float, float]:
        """The weights divided by their sum, as in a weighted sum."""
        vector, keyword = proportions(self.weights)
        return vector, keyword

    @property
    def scales(self) -> tuple[Normalisation, Normalisation] | None:
        """The scales of a weighted sum; None for other fusions."""
        return scales_of(self.fusion) if isinstance(self.fusion, WeightedSum) else None

    @property
    def lines(self) -> tuple["Line", "Line"]:
        """Linear function from the raw score of each leg to its part of the fused score."""
        vector, keyword = self.scales or (Normalisation.NONE, Normalisation.NONE)
        return (_line(vector, self.proportions[0]), _line(keyword, self.proportions[1]))


class Line(NamedTuple):
    """Linear function: slope times score plus intercept."""

    slope: float
    intercept: float

    @property
    def root(self) -> float:
        """The raw score that contributes 0, used for nodes outside the leg."""
        return -self.intercept / self.slope


def scales_of(fusion: WeightedSum) -> tuple[Normalisation, Normalisation]:
    """Return the normalisation of vector and keyword scores."""
    vector, keyword = LEGS
    return fusion.scale_of(vector), fusion.scale_of(keyword)


def check_native(
    native: Sequence[NativeFusion], fusion: Fusion, weights: Mapping[str, float], *, engine: str
) -> None:
    """Raise if an engine does not compute a fusion natively."""
    if any(offered.is_as(fusion, [weights[leg] for leg in LEGS]) for offered in native):
        return
    fusions = " or ".join(map(str, native))
    offer = f"use {fusions}, or leave pushdown out" if native else "leave pushdown out"
    raise UnsupportedModeError(
        f"pushdown=True: {engine} does not fuse by {fusion!r} with the weights {dict(weights)}; "
        f"{offer}: then this package fuses, by any formula and weights, and the hits say what "
        "either search gave to them"
    )


def _line(scale: Normalisation, weight: float) -> Line:
    if scale is Normalisation.COSINE:
        return Line(weight / 2.0, weight / 2.0)
    return Line(weight, 0.0)
