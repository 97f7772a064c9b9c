"""The recorded config of engines of the Qdrant family, and their fusions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.engine.config import StoreConfig
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch, Line, NativeFusion

_UNCUT: Final = Normalisation.DISTRIBUTION_BASED_UNCUT
_RAW: Final = Normalisation.NONE

# With other weights these engines compute 1 / (rank / weight + constant), which is not our formula.
BY_RANK: Final = NativeFusion(kind=RRF, equal_weights=True)
BY_DISTRIBUTION: Final = NativeFusion(kind=WeightedSum, scales=(_UNCUT, _UNCUT), equal_weights=True)
BY_SUM: Final = NativeFusion(kind=WeightedSum, scales=(_RAW, _RAW))
BY_COSINE: Final = NativeFusion(kind=WeightedSum, scales=(Normalisation.COSINE, _RAW))


def fusions_of(kind: str) -> tuple[NativeFusion, ...]:
    """Return the native fusions for scores of a kind."""
    if kind == "cosine":
        return (BY_RANK, BY_DISTRIBUTION, BY_SUM, BY_COSINE)
    return (BY_RANK, BY_DISTRIBUTION, BY_SUM) if kind == "dot" else (BY_RANK,)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A fusion in the engine's terms.

    Attributes:
        factor: Our score divided by the engine's.
        rank_constant: Of a fusion by rank; None for others.
        lines: Of a sum: what each leg adds, by the engine's name for its score. Empty for
            fusions by rank and by distribution.
        constant: A constant summand.
        defaults: Of a sum: the score of what a leg did not find.
    """

    factor: float = 1.0
    rank_constant: int | None = None
    lines: Mapping[str, Line] = field(default_factory=dict)
    constant: float = 0.0

    @property
    def defaults(self) -> dict[str, float]:
        """The score that adds nothing, by the engine's name for a leg's score."""
        return {name: line.root for name, line in self.lines.items()}


def recipe_of(how: FusedSearch) -> Recipe:
    """Return the engine's terms for a fusion."""
    if how.by_rank is not None:
        # The engine counts ranks from 0, we from 1.
        return Recipe(how.weights[0], rank_constant=int(how.by_rank.k) + 1)
    if how.scales == BY_DISTRIBUTION.scales:
        return Recipe(how.proportions[0])
    lines = {f"$score[{leg}]": line for leg, line in enumerate(how.lines)}
    return Recipe(lines=lines, constant=sum(line.intercept for line in lines.values()))


@dataclass(frozen=True, slots=True)
class QdrantConfig(StoreConfig):
    """How a store of the Qdrant family is set up."""

    average_length: float | None = None
