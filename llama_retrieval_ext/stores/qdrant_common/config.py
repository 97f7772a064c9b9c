"""How engines of the Qdrant family are told to fuse, and what they have of our fusions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.config import ConfigRequest
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch, Line, NativeFusion
from llama_retrieval_ext.text.tokenizer import Tokenizer

_UNCUT: Final = Normalisation.DISTRIBUTION_BASED_UNCUT
_RAW: Final = Normalisation.NONE

# With other weights these engines compute 1 / (rank / weight + constant), which is not our formula.
BY_RANK: Final = NativeFusion(kind=RRF, equal_weights=True)
BY_DISTRIBUTION: Final = NativeFusion(kind=WeightedSum, scales=(_UNCUT, _UNCUT), equal_weights=True)
BY_SUM: Final = NativeFusion(kind=WeightedSum, scales=(_RAW, _RAW))
BY_COSINE: Final = NativeFusion(kind=WeightedSum, scales=(Normalisation.COSINE, _RAW))


def fusions_of(kind: str) -> tuple[NativeFusion, ...]:
    """The fusions there are for scores of a kind.

    Args:
        kind: What ``ScoreRange.kind`` says of vector search. Of distances the engines normalise
            and add up the distance itself, where less is better.
    """
    if kind == "cosine":
        return (BY_RANK, BY_DISTRIBUTION, BY_SUM, BY_COSINE)
    return (BY_RANK, BY_DISTRIBUTION, BY_SUM) if kind == "dot" else (BY_RANK,)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A fusion in the engine's terms.

    Attributes:
        factor: What the engine's score is multiplied by to be ours.
        rank_constant: Of a fusion by rank; None for others.
        lines: Of a sum: what each leg adds, by the engine's name for its score. Empty for others:
            what is left is fusion by distribution.
        constant: What the sum begins with.
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
    """How the engine is to be told."""
    if how.by_rank is not None:
        # The engine counts ranks from 0, we from 1.
        return Recipe(how.weights[0], rank_constant=int(how.by_rank.k) + 1)
    if how.scales == BY_DISTRIBUTION.scales:
        return Recipe(how.proportions[0])
    lines = {f"$score[{place}]": line for place, line in enumerate(how.lines)}
    return Recipe(lines=lines, constant=sum(line.intercept for line in lines.values()))


@dataclass(frozen=True, slots=True)
class Manifest:
    """How a store is set up.

    Attributes:
        tokenizer: Cuts documents and queries into terms.
        distance: How embeddings are compared.
        dimension: Length of the embeddings; None until the first ones are added.
        average_length: Mean number of terms that the weights of BM25 are computed with; None until
            the first nodes are added.
        generation: Which of the shards in a directory counts: one more each time that it was
            compacted.
        params: Settings of the engine that it was made with.
    """

    tokenizer: Tokenizer
    distance: Distance = "cosine"
    dimension: int | None = None
    average_length: float | None = None
    generation: int = 0
    params: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings(ConfigRequest):
    """What the one who opens a store asks for; None takes what is recorded, or the default."""

    def applied(self, recorded: Manifest | None, where: object) -> Manifest:
        """The manifest of a store that is opened with these settings.

        Args:
            recorded: What the store has; None for a new one.
            where: The store, for messages.

        Raises:
            ConfigurationError: The store has another tokenizer or distance.
            DimensionMismatchError: The store has another dimension.
        """
        if recorded is None or recorded.dimension is None:
            old = recorded or Manifest(Tokenizer())
            return replace(
                old,
                tokenizer=self.tokenizer or old.tokenizer,
                distance=self.distance or old.distance,
                dimension=self.dimension,
                params=self.params or {},
            )
        self.check(recorded, where)
        return recorded
