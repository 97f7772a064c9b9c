"""What a collection is made of, as far as searching it needs to know."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from qdrant_client import models

from llama_retrieval_ext.errors import StoreFormatError
from llama_retrieval_ext.stores.engine.backend import ScoreRange

Score: TypeAlias = Callable[[float], float]


def _cosine(score: float) -> float:
    return min(1.0, max(-1.0, score))  # single precision oversteps by some 1e-7


def _negative(distance: float) -> float:
    return -distance


_SCORES: Final[Mapping[models.Distance, Score]] = {
    models.Distance.COSINE: _cosine,
    models.Distance.DOT: float,
    models.Distance.EUCLID: _negative,
    models.Distance.MANHATTAN: _negative,
}
_RANGES: Final[Mapping[models.Distance, ScoreRange]] = {
    models.Distance.COSINE: ScoreRange("cosine", -1.0, 1.0),
    models.Distance.DOT: ScoreRange("dot"),
    models.Distance.EUCLID: ScoreRange("negative_distance", None, 0.0),
    models.Distance.MANHATTAN: ScoreRange("negative_distance", None, 0.0),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """The vectors of a collection.

    Attributes:
        dense: Name of the dense vectors; None for those without a name.
        dimension: How long they are.
        distance: How they are compared.
        sparse: Name of the sparse vectors; None where there are none.
        weighs_rarity: Whether the engine multiplies by the rarity of terms.
    """

    dense: str | None
    dimension: int
    distance: models.Distance
    sparse: str | None = None
    weighs_rarity: bool = False


def score_of(distance: models.Distance) -> Score:
    """From the engine's score to ours: higher is better."""
    return _SCORES[distance]


def range_of(distance: models.Distance) -> ScoreRange:
    """What our scores mean for a distance."""
    return _RANGES[distance]


def layout_of(
    info: models.CollectionInfo, *, dense: str, sparse: tuple[str, ...], where: str
) -> Layout:
    """The layout of a collection that exists.

    Args:
        info: What the engine says of it.
        dense: What the dense vectors are called, unless they have no name.
        sparse: What the sparse vectors may be called.
        where: The store, for messages.

    Raises:
        StoreFormatError: It has no such dense vectors.
    """
    vectors = info.config.params.vectors
    unnamed = isinstance(vectors, models.VectorParams)
    params = vectors if isinstance(vectors, models.VectorParams) else (vectors or {}).get(dense)
    if params is None or params.multivector_config is not None:
        raise StoreFormatError(
            f"{where} has no single dense vectors named {dense!r}; it has "
            f"{sorted(vectors) if isinstance(vectors, dict) else vectors}; name one of them"
        )
    known = info.config.params.sparse_vectors or {}
    name = next((name for name in sparse if name in known), None)
    rarity = name is not None and known[name].modifier == models.Modifier.IDF
    return Layout(None if unnamed else dense, params.size, params.distance, name, rarity)
