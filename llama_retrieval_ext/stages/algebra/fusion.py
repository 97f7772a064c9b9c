"""`Fusion`: the kind of stage that makes one ranking of several."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import NamedTuple, TypeAlias

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, NodeWithScore

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.order import ranked
from llama_retrieval_ext.formulas.sum_of_legs import sum_of_legs
from llama_retrieval_ext.formulas.weighted_legs import weighted_legs
from llama_retrieval_ext.ranking import Contribution, Hit, finite_score, with_path_of
from llama_retrieval_ext.stages.algebra.last_stage import check_last
from llama_retrieval_ext.stages.algebra.operand import Operand
from llama_retrieval_ext.stages.algebra.refine import Refine
from llama_retrieval_ext.stages.fusions.normalisation import Normalisation

Weights: TypeAlias = Mapping[str, float] | Sequence[float] | None


class Unscored(Enum):
    """What a fusion by scores does with a hit that has none, as some retrievers return.

    It is refused with an error, left out, or found with nothing to add: its share is 0.
    """

    REFUSE = "refuse"
    LEAVE_OUT = "leave_out"
    ZERO = "zero"

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


@dataclass(frozen=True, slots=True)
class LegRanking:
    """What one leg of a fusion found.

    Attributes:
        name: Name of the leg.
        hits: Score by id, best first; None for a hit without a score.
        weight: The leg's weight.
    """

    name: str
    hits: Mapping[str, float | None]
    weight: float

    def scaled(self, normalise: Normalisation, unscored: Unscored) -> Mapping[str, float]:
        """Normalised score of every id.

        Raises:
            ScoreError: One is not finite, or None and to be refused.
        """
        refused = unscored is Unscored.REFUSE
        scores = {
            node_id: finite_score(node_id, score)
            for node_id, score in self.hits.items()
            if refused or score is not None
        }
        scaled = normalise.apply(scores)
        if unscored is Unscored.ZERO and len(scores) < len(self.hits):
            return {**dict.fromkeys(self.hits, 0.0), **scaled}
        return scaled


class FusedId(NamedTuple):
    """An id with its fused score, and what each leg gave to it."""

    node_id: str
    score: float
    contributions: tuple[Contribution, ...]


class Fusion(Operand, ABC):
    """Makes one ranking of several; what each leg gave is kept as the hit's contributions.

    The order within a leg is the leg's own: it is not sorted again. An id that a leg repeats counts
    once, where it stands first. Equal fused scores are ordered by node id. A leg of weight 0 is
    left out.
    """

    # By leg name, or in the order of the legs; None for the weights of the legs. A field of the
    # subclasses' dataclasses.
    weights: Weights

    @abstractmethod
    def shares(self, legs: Sequence[LegRanking]) -> list[Mapping[str, float]]:
        """What each leg gives to each of its ids, one mapping a leg."""

    def combine(self, shares: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        """The fused score of every id; the sum of its shares unless a fusion says otherwise."""
        return sum_of_legs(shares)

    def fuse(
        self,
        rankings: Mapping[str, Sequence[NodeWithScore]],
        *,
        weights: Mapping[str, float] | None = None,
        top_k: int | None = None,
        source: str = "",
    ) -> list[Hit]:
        """The fused ranking.

        Args:
            rankings: The legs that answered, by name.
            weights: Weight of each leg, by name; None for the fusion's own.
            top_k: How many hits to return; None for all.
            source: What the hits name as their source.

        Returns:
            Fresh hits, best first; nothing that came in is changed.

        Raises:
            ScoreError: A score is None or not finite, and the fusion goes by scores.
        """
        nodes: dict[str, BaseNode] = {}
        paths: dict[str, Hit] = {}
        scored: dict[str, list[tuple[str, float | None]]] = {}
        for name, ranking in rankings.items():
            scored[name] = [(hit.node.node_id, hit.score) for hit in ranking]
            for hit in ranking:
                nodes.setdefault(hit.node.node_id, hit.node)
                if isinstance(hit, Hit) and hit.hop_distance is not None:
                    paths.setdefault(hit.node.node_id, hit)
        hits = [
            Hit(node=nodes[node_id], score=score, source=source, contributions=contributions)
            for node_id, score, contributions in self.fuse_ids(scored, weights=weights, top_k=top_k)
        ]
        return [with_path_of(hit, paths.get(hit.node.node_id)) for hit in hits] if paths else hits

    def fuse_ids(
        self,
        rankings: Mapping[str, Iterable[tuple[str, float | None]]],
        *,
        weights: Mapping[str, float] | None = None,
        top_k: int | None = None,
    ) -> list[FusedId]:
        """`fuse`, for rankings that are ids with scores, best first, and not yet nodes."""
        legs = _counted(rankings, self._own_weights(rankings) if weights is None else weights)
        shares = self.shares(legs)
        top = ranked(self.combine(shares))[:top_k]
        return _with_contributions(top, legs, shares)

    def _own_weights(self, rankings: Iterable[str]) -> Mapping[str, float] | None:
        own, names = self.weights, list(rankings)
        if own is None or not names:
            return None
        if isinstance(own, Mapping):  # it may name legs that did not answer
            own = [own.get(name, 1.0) for name in names]
        return resolved_weights(own, names, ())

    def __repr__(self) -> str:
        return concise_repr(self)

    def __rshift__(self, other: Refine | BaseNodePostprocessor) -> "FusionChain":
        from llama_retrieval_ext.stages.algebra.composing import then  # noqa: PLC0415 - it knows all kinds

        return then(self, other)  # type: ignore[return-value]  # by the table there


@dataclass(frozen=True, slots=True)
class FusionChain(Operand):
    """A fusion and the stages behind it, ``RRF() >> Top(10)``, waiting for branches."""

    fusion: Fusion
    refines: tuple[Refine, ...]

    def __post_init__(self) -> None:
        check_last(self.refines)

    def __rshift__(self, other: Refine | BaseNodePostprocessor) -> "FusionChain":
        from llama_retrieval_ext.stages.algebra.composing import then  # noqa: PLC0415 - it knows all kinds

        return then(self, other)  # type: ignore[return-value]  # by the table there

    def __repr__(self) -> str:
        return " >> ".join(repr(stage) for stage in (self.fusion, *self.refines))


def concise_repr(stage: Fusion) -> str:
    """The expression that makes the stage, without the arguments that are None."""
    given = {each.name: getattr(stage, each.name) for each in fields(stage) if each.init}  # type: ignore[arg-type]
    told = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
    return f"{type(stage).__name__}({told})"


def resolved_weights(
    weights: Weights, names: Sequence[str], defaults: Iterable[float]
) -> dict[str, float]:
    """The weight of every leg by name.

    Args:
        weights: By name, where missing ones keep their default, or one a leg in their order.
        names: The legs.
        defaults: Their own weights, used where ``weights`` says nothing.

    Raises:
        ConfigurationError: A name is not a leg, the number is wrong, or a weight cannot be one.
    """
    if weights is None:
        found = list(defaults)
    elif isinstance(weights, Mapping):
        unknown = sorted(set(weights) - set(names))
        if unknown:
            raise ConfigurationError(
                f"weights name {', '.join(map(repr, unknown))}, which is no leg; "
                f"the legs are {', '.join(map(repr, names))}"
            )
        pairs = zip(names, defaults, strict=True)
        found = [weights.get(name, default) for name, default in pairs]
    else:
        found = list(weights)
    weighted_legs(names, weights=found)
    return dict(zip(names, map(float, found), strict=True))


def _counted(
    rankings: Mapping[str, Iterable[tuple[str, float | None]]],
    weights: Mapping[str, float] | None,
) -> list[LegRanking]:
    legs: list[LegRanking] = []
    for name, ranking in rankings.items():
        weight = 1.0 if weights is None else weights[name]
        if weight > 0:
            hits: dict[str, float | None] = {}
            for node_id, score in ranking:
                hits.setdefault(node_id, score)
            legs.append(LegRanking(name, hits, weight))
    return legs


def _with_contributions(
    top: Sequence[tuple[str, float]],
    legs: Sequence[LegRanking],
    shares: Sequence[Mapping[str, float]],
) -> list[FusedId]:
    given: dict[str, list[Contribution]] = {node_id: [] for node_id, _ in top}
    for leg, share in zip(legs, shares, strict=True):
        for rank, (node_id, score) in enumerate(leg.hits.items(), start=1):
            if node_id in given and node_id in share:
                given[node_id].append(
                    Contribution(leg.name, rank, score, leg.weight, share[node_id])
                )
        if len(share) > len(leg.hits):  # the leg votes on what it did not find
            for node_id in given.keys() & share.keys() - leg.hits.keys():
                given[node_id].append(
                    Contribution(leg.name, None, None, leg.weight, share[node_id])
                )
    return [FusedId(node_id, score, tuple(given[node_id])) for node_id, score in top]
