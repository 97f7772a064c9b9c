"""The recorded config and the native fusions of the Qdrant engines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.engine.config import StoreConfig
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch, Line, NativeFusion

_UNCUT: Final = Normalisation.DISTRIBUTION_BASED_UNCUT
_RAW: Final = Normalisation.NONE

# With unequal weights these engines compute 1 / (rank / weight + constant), unlike our formula.
BY_RANK: Final = NativeFusion(kind=RRF, equal_weights=True)
BY_DISTRIBUTION: Final = NativeFusion(kind=WeightedSum, scales=(_UNCUT, _UNCUT), equal_weights=True)
BY_SUM: Final = NativeFusion(kind=WeightedSum, scales=(_RAW, _RAW))
BY_COSINE: Final = NativeFusion(kind=WeightedSum, scales=(Normalisation.COSINE, _RAW))


def fusions_of(kind: str) -> tuple[NativeFusion, ...]:
    """Return the native fusions for a kind of vector score."""
    if kind == "cosine":
        return (BY_RANK, BY_DISTRIBUTION, BY_SUM, BY_COSINE)
    return (BY_RANK, BY_DISTRIBUTION, BY_SUM) if kind == "dot" else (BY_RANK,)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Engine parameters of a fusion.

    Attributes:
        factor: Our score divided by the engine's.
        rank_constant: Constant of a fusion by rank; None for other fusions.
        lines: Linear function of each leg of a sum, by the engine's name for the leg's score. Empty
            for fusions by rank and by distribution.
        constant: Constant summand.
        defaults: Score of each leg of a sum for nodes that the leg did not return.
    """

    factor: float = 1.0
    rank_constant: int | None = None
    lines: Mapping[str, Line] = field(default_factory=dict)
    constant: float = 0.0

    @property
    def defaults(self) -> dict[str, float]:
        """The score that contributes 0, by the engine's name for the leg's score."""
        return {name: line.root for name, line in self.lines.items()}


def recipe_of(how: FusedSearch) -> Recipe:
    """Return the engine parameters of a fusion."""
    if how.by_rank is not None:
        # Ranks start at 0 in the engine, at 1 in this package.
        return Recipe(how.weights[0], rank_constant=int(how.by_rank.k) + 1)
    if how.scales == BY_DISTRIBUTION.scales:
        return Recipe(how.proportions[0])
    lines = {f"$score[{leg}]": line for leg, line in enumerate(how.lines)}
    return Recipe(lines=lines, constant=sum(line.intercept for line in lines.values()))


@dataclass(frozen=True, slots=True)
class QdrantConfig(StoreConfig):
    """The config of a store of a Qdrant engine."""

    average_length: float | None = None
