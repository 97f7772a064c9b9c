"""`Fusion`: the kind of stage that combines several rankings into one."""

import inspect
import math
from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.checks import check_count
from llama_retrieval_ext.errors import ConfigurationError, ExecutionError, ScoreError
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.formulas.scores import ranked, sum_of_legs
from llama_retrieval_ext.hits import as_hit, with_path_of
from llama_retrieval_ext.pipeline.leg_weights import MinSuccess, Weights, resolved_weights
from llama_retrieval_ext.pipeline.stages import Operand, Refine, RefineFunction, ranking_of
from llama_retrieval_ext.reordering import in_order
from llama_retrieval_ext.results import Contribution, Hit, origin_of, with_origin

if TYPE_CHECKING:
    from llama_retrieval_ext.pipeline.chains import FusionChain

# Distance between hits without a score: negligible beside any score.
_LEAST: Final = 1e-200


# Treatment of hits without a score, as some retrievers return, in a fusion by scores. Such a hit
# raises an error, is left out, or is kept with no contribution: its share is 0, or just enough
# above 0 (below 1e-190) to preserve the leg's order among such hits.
Unscored: TypeAlias = Literal["refuse", "leave_out", "zero"]


@dataclass(frozen=True, slots=True)
class LegRanking:
    """Ranking of one leg of a fusion.

    Attributes:
        name: Name of the leg.
        hits: Score by id, best first; None for a hit without a score.
        weight: The leg's weight.
        normalised: Score by id on the scale of the fusion, after scaling.
    """

    name: str
    hits: Mapping[str, float | None]
    weight: float
    normalised: dict[str, float] = field(default_factory=dict, init=False, compare=False)

    def scaled(self, normalise: Normalisation, unscored: Unscored) -> Mapping[str, float]:
        """Return the normalised score of every id."""
        # A formula refuses None.
        hits: Mapping[str, float] = self.hits  # type: ignore[assignment]
        if unscored != "refuse":
            hits = {node_id: score for node_id, score in self.hits.items() if score is not None}
        scaled = normalise.apply(hits)
        if unscored == "zero" and len(hits) < len(self.hits):
            without = [node_id for node_id in self.hits if node_id not in hits]
            behind = range(len(without) - 1, -1, -1)
            shares = (_LEAST * number for number in behind)
            scaled = {**dict(zip(without, shares, strict=True)), **scaled}
        self.normalised.update(scaled)
        return scaled


class FusedId(NamedTuple):
    """An id with its fused score and the contribution of each leg."""

    node_id: str
    score: float
    contributions: tuple[Contribution, ...]


class Fusion(Operand, ABC):
    """Stage that combines rankings; each leg's part is stored in the hit's contributions.

    Legs are not sorted again. A repeated id in a leg counts once, at its first position. Equal
    fused scores are ordered by node id. A leg of weight 0 is left out.

    A subclass defines `shares`, the part of each leg in the score of each id, or else `fuse`, a
    function of the rankings by leg name, with or without a parameter ``weights``.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> from llama_retrieval_ext.pipeline.branches import branches
        >>> class OneAfterTheOther(Fusion):
        ...     def fuse(self, rankings):
        ...         return [hit for ranking in rankings.values() for hit in ranking]
        >>> a, b = FakeRetriever([("n1", 0.5)]), FakeRetriever([("n2", 0.9), ("n1", 0.1)])
        >>> pipeline = branches(a, b) >> OneAfterTheOther()
        >>> [hit.node_id for hit in pipeline.retrieve("annual leave")]
        ['n1', 'n2']

    """

    # By leg name, or in the order of the legs; None for the weights of the legs. Dataclass
    # subclasses declare it as a field.
    weights: Weights = None
    # Number of legs that must answer; None for the branches' number, by default 1. Dataclass
    # subclasses declare it as a field.
    min_success: MinSuccess = None

    def shares(self, legs: Sequence[LegRanking]) -> Sequence[Mapping[str, float]]:  # noqa: ARG002
        """Return the share of each leg in the score of each of its ids, one mapping per leg."""
        name = type(self).__name__
        raise ConfigurationError(
            f"{name} defines no shares(self, legs), what each leg adds to the scores; write it, or "
            "put the fusion behind retrievers, (a | b) >> fusion, where its fuse is enough"
        )

    def combine(self, shares: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        """Return the fused score of every id; by default the sum of its shares."""
        return sum_of_legs(shares)

    def fuse(
        self,
        rankings: Mapping[str, Sequence[NodeWithScore]],
        *,
        weights: Mapping[str, float] | None = None,
        top_k: int | None = None,
        source: str = "",
    ) -> list[Hit]:
        """Return the fused ranking.

        Args:
            rankings: The legs that answered, by name.
            weights: Weight of each leg, by name, 1 if missing; None for the fusion's weights.
            top_k: Number of hits to return; None for all.
            source: Value of ``Hit.source``.

        Returns:
            New hits, best first; the arguments are unchanged.

        Raises:
            ConfigurationError: A weight is invalid or of no leg, or ``top_k`` is below 1.
            ScoreError: A score is None or not finite, and the fusion uses scores.
        """
        if weights is not None:
            weights = resolved_weights(weights, list(rankings), [1.0] * len(rankings))
        if top_k is not None:
            check_count(top_k, "top_k")
        return self.fused(rankings, weights, top_k, source)

    def fused(
        self,
        rankings: Mapping[str, Sequence[NodeWithScore]],
        weights: Mapping[str, float] | None,
        top_k: int | None,
        source: str,
    ) -> list[Hit]:
        """Return the result of `fuse` for weights that are checked."""
        first: dict[str, NodeWithScore] = {}
        paths: dict[str, Hit] = {}
        scored: dict[str, list[tuple[str, float | None]]] = {}
        for name, ranking in rankings.items():
            pairs = scored[name] = []
            for hit in ranking:
                node_id = hit.node.node_id
                pairs.append((node_id, hit.score))
                first.setdefault(node_id, hit)
                if isinstance(hit, Hit) and (hit.hop_distance is not None or hit.proof):
                    paths.setdefault(node_id, hit)
        hits: list[Hit] = []
        for id_, score, contributions in self.fuse_ids(scored, weights=weights, top_k=top_k):
            origin = first[id_]
            hit = Hit(node=origin.node, score=score, source=source, contributions=contributions)
            if isinstance(origin, Hit):
                hit = with_path_of(with_origin(hit, origin_of(origin)), paths.get(id_))
            hits.append(hit)
        return hits

    def fuse_legs(
        self,
        rankings: Mapping[str, Sequence[NodeWithScore]],
        weights: Mapping[str, float],
        top_k: int | None,
        source: str,
    ) -> list[Hit]:
        """Return the fused ranking of a composite's legs, by its weights, which are checked."""
        if type(self).fuse is Fusion.fuse:
            return self.fused(rankings, weights, top_k, source)
        return _fused_by(self, rankings, weights, top_k, source)

    def fuse_ids(
        self,
        rankings: Mapping[str, Iterable[tuple[str, float | None]]],
        *,
        weights: Mapping[str, float] | None = None,
        top_k: int | None = None,
        with_ties: bool = False,
    ) -> list[FusedId]:
        """Return the fused ids of rankings of ids with scores, best first, with unchecked weights.

        With `with_ties`, ids that tie with the last of ``top_k`` are also returned.
        """
        legs = _counted(rankings, self._own_weights(rankings) if weights is None else weights)
        shares = self.shares(legs)
        best = ranked(self.combine(shares), top_k=top_k)
        return _with_contributions(best if with_ties else best[:top_k], legs, shares)

    @property
    def reads_ids(self) -> bool:
        """Whether scores may depend on the text of ids; this package's fusions only compare ids."""
        return _reads_ids(type(self))

    def _own_weights(self, rankings: Iterable[str]) -> Mapping[str, float] | None:
        weights, names = self.weights, list(rankings)
        if weights is None or not names:
            return None
        if isinstance(weights, Mapping):  # it may contain legs that did not answer
            weights = [weights.get(name, 1.0) for name in names]
        return resolved_weights(weights, names, ())

    if TYPE_CHECKING:

        def __rshift__(
            self, other: Refine | BaseNodePostprocessor | RefineFunction
        ) -> "FusionChain": ...


@cache
def _reads_ids(kind: type[Fusion]) -> bool:
    methods = (kind.shares, kind.combine, kind.fuse_ids)
    return not all(method.__module__.startswith("llama_retrieval_ext.") for method in methods)


def _counted(
    rankings: Mapping[str, Iterable[tuple[str, float | None]]], weights: Mapping[str, float] | None
) -> list[LegRanking]:
    legs: list[LegRanking] = []
    for name, ranking in rankings.items():
        weight = 1.0 if weights is None else weights[name]
        if weight > 0:
            pairs = list(ranking)
            hits = dict(pairs)
            if len(hits) < len(pairs):  # the first position of a repeated id counts
                hits = {}
                for node_id, score in pairs:
                    hits.setdefault(node_id, score)
            legs.append(LegRanking(name, hits, weight))
    return legs


def _with_contributions(
    top: Sequence[tuple[str, float]],
    legs: Sequence[LegRanking],
    shares: Sequence[Mapping[str, float]],
) -> list[FusedId]:
    contributions: dict[str, list[Contribution]] = {node_id: [] for node_id, _ in top}
    for leg, share in zip(legs, shares, strict=True):
        ranks = dict(zip(leg.hits, count(1), strict=False))
        for node_id, parts in contributions.items():
            if node_id in share:  # also an id that the leg did not find, if it scores that
                parts.append(
                    Contribution(
                        leg.name,
                        ranks.get(node_id),
                        leg.hits.get(node_id),
                        leg.weight,
                        share[node_id],
                        leg.normalised.get(node_id),
                    )
                )
    return [FusedId(node_id, score, tuple(contributions[node_id])) for node_id, score in top]


def _fused_by(
    fusion: Fusion,
    rankings: Mapping[str, Sequence[NodeWithScore]],
    weights: Mapping[str, float],
    top_k: int | None,
    source: str,
) -> list[Hit]:
    """Return the ranking of a fusion that defines `fuse`, given the arguments that it takes."""
    answered = {name: ranking for name, ranking in rankings.items() if weights[name] > 0}
    options: dict[str, object] = {
        "weights": {name: weights[name] for name in answered},
        "top_k": top_k,
        "source": source,
    }
    parameters = inspect.signature(fusion.fuse).parameters
    takes_any = any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    if not takes_any:
        options = {name: value for name, value in options.items() if name in parameters}
    if "weights" not in options and len(set(weights.values())) > 1:
        raise ConfigurationError(
            f"{type(fusion).__name__}.fuse takes no weights, and the legs have some: {weights}; "
            "write `def fuse(self, rankings, *, weights=None)`, or leave them out"
        )
    answer = fusion.fuse(answered, **options)  # type: ignore[arg-type]  # as far as it takes them
    return _checked(fusion, answer, rankings, source)[:top_k]


def _checked(
    fusion: Fusion, answer: object, rankings: Mapping[str, Sequence[NodeWithScore]], source: str
) -> list[Hit]:
    name = type(fusion).__name__
    node_ids = {hit.node.node_id for ranking in rankings.values() for hit in ranking}
    hits: list[Hit] = []
    for hit in ranking_of(answer, f"{name}.fuse"):
        if hit.node.node_id not in node_ids:
            raise ExecutionError(
                f"{name}.fuse returned node {hit.node.node_id!r}, which no leg found"
            )
        if hit.score is not None and not math.isfinite(hit.score):
            raise ScoreError(f"{name}.fuse gave node {hit.node.node_id!r} the score {hit.score}")
        hits.append(as_hit(hit, source=source))
    return in_order(hits)
