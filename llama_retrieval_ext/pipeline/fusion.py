"""`Fusion`: the kind of stage that combines several rankings into one; weights of its legs."""

import inspect
import math
from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, NamedTuple, TypeAlias

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.checks import check_count
from llama_retrieval_ext.errors import ConfigurationError, ExecutionError, ScoreError
from llama_retrieval_ext.execution.context import current_context
from llama_retrieval_ext.formulas.fusion import ranked, sum_of_legs, weighted_legs
from llama_retrieval_ext.formulas.normalisation import LARGEST, Normalisation
from llama_retrieval_ext.hits import as_hit, with_path_of
from llama_retrieval_ext.parameters import Check, WholeNumber, is_number
from llama_retrieval_ext.pipeline.stages import Operand, Refine, RefineFunction, ranking_of
from llama_retrieval_ext.reordering import in_order
from llama_retrieval_ext.results import Contribution, Hit, origin_of, with_origin
from llama_retrieval_ext.text.normalization import LANGUAGES, share_outside

if TYPE_CHECKING:
    from llama_retrieval_ext.pipeline.chains import FusionChain

# Share of the weight of a leg that does not know the script of a question. Measured on three sets
# of Chinese questions; see tests/benchmarks/README.md.
_FOREIGN_SHARE: Final = 0.1
_PACKAGE: Final = __name__.partition(".")[0]
# Distance between hits without a score: negligible beside any score.
_LEAST: Final = 1e-200


def check_weights(weights: Mapping[str, float] | Sequence[float] | None) -> None:
    """Raise if a weight is invalid, or no weight of a list is above 0."""
    if weights is None:
        return
    if not isinstance(weights, Mapping | list | tuple):
        raise ConfigurationError(
            f"weights must be a mapping by leg name or a list in the order of the legs, "
            f"got {weights!r}"
        )
    named = weights.items() if isinstance(weights, Mapping) else enumerate(weights)
    for leg, weight in named:
        if not (is_number(weight) and 0.0 <= weight <= LARGEST):
            which = (
                f"the weight of leg {leg!r}" if isinstance(weights, Mapping) else f"weight {leg}"
            )
            raise ConfigurationError(
                f"{which} is {weight!r}; pass a number from 0 (which switches the leg off) to 1e100"
            )
    if weights and not isinstance(weights, Mapping) and not any(weights):
        raise ConfigurationError(
            f"all {len(weights)} weights are 0, so nothing can be ranked; pass at least one above 0"
        )


Weights: TypeAlias = Annotated[Mapping[str, float] | Sequence[float] | None, Check(check_weights)]
MinSuccess: TypeAlias = WholeNumber | None

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
        if unscored != "refuse" and None in self.hits.values():
            hits = {node_id: score for node_id, score in self.hits.items() if score is not None}
        scaled = normalise.apply(hits)
        if unscored == "zero" and hits is not self.hits:
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
    # Whether scores may depend on the text of ids; this package's fusions only compare ids.
    reads_ids: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        methods = (cls.shares, cls.combine, cls.fuse_ids)
        cls.reads_ids = any(m.__module__.partition(".")[0] != _PACKAGE for m in methods)

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
        cutoff: tuple[int, float] | None = None,
    ) -> list[FusedId]:
        """Return the fused ids of rankings of ids with scores, best first, with unchecked weights.

        With `with_ties`, ids that tie with the last of ``top_k`` are also returned. With `cutoff`,
        ids with less than a share of the score at a rank are left out, unless one is below 0.
        """
        if weights is None:
            weights = self._weights_of(rankings)
        legs: list[LegRanking] = []
        for name, ranking in rankings.items():
            weight = 1.0 if weights is None else weights[name]
            if weight > 0:
                pairs = list(ranking)
                hits = dict(pairs)
                if len(hits) < len(pairs):  # the first position of a repeated id counts
                    first = dict(reversed(pairs))
                    hits = {node_id: first[node_id] for node_id in hits}
                legs.append(LegRanking(name, hits, weight))
        shares = self.shares(legs)
        best = ranked(self.combine(shares), top_k=top_k)
        if cutoff is not None and len(best) > cutoff[0] and best[-1][1] >= 0:
            least = cutoff[1] * best[cutoff[0] - 1][1]
            best = [(node_id, score) for node_id, score in best if score >= least]
        return _with_contributions(best if with_ties else best[:top_k], legs, shares)

    def _weights_of(self, rankings: Iterable[str]) -> Mapping[str, float] | None:
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


def _with_contributions(
    top: Sequence[tuple[str, float]],
    legs: Sequence[LegRanking],
    shares: Sequence[Mapping[str, float]],
) -> list[FusedId]:
    parts = [
        (leg, share, dict(zip(leg.hits, count(1), strict=False)))
        for leg, share in zip(legs, shares, strict=True)
    ]
    fused: list[FusedId] = []
    for node_id, score in top:
        contributions: list[Contribution] = []
        for leg, share, ranks in parts:
            if node_id in share:  # also an id that the leg did not find, if it scores that
                rank, raw = ranks.get(node_id), leg.hits.get(node_id)
                scaled = leg.normalised.get(node_id)
                part = Contribution(leg.name, rank, raw, leg.weight, share[node_id], scaled)
                contributions.append(part)
        fused.append(FusedId(node_id, score, tuple(contributions)))
    return fused


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
    if all(part.kind is not inspect.Parameter.VAR_KEYWORD for part in parameters.values()):
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


def resolved_weights(
    weights: Weights, names: Sequence[str], defaults: Iterable[float]
) -> dict[str, float]:
    """Return the weight of every leg by name."""
    check_weights(weights)
    if weights is None:
        resolved = list(defaults)
    elif isinstance(weights, Mapping):
        unknown = sorted(set(weights) - set(names))
        if unknown:
            raise ConfigurationError(
                f"weights name {', '.join(map(repr, unknown))}, which is no leg; "
                f"the legs are {', '.join(map(repr, names))}"
            )
        pairs = zip(names, defaults, strict=True)
        resolved = [weights.get(name, default) for name, default in pairs]
    else:
        resolved = list(weights)
    weighted_legs(names, weights=resolved)
    return dict(zip(names, map(float, resolved), strict=True))


def resolved_min_success(min_success: int | None, fusion: Fusion, *, legs: int) -> int:
    """Return the number of legs that must answer: the composite's, the fusion's, or else 1."""
    if min_success is not None and fusion.min_success not in (None, min_success):
        raise ConfigurationError(
            f"min_success is {min_success} for the legs and {fusion.min_success} in {fusion!r}; "
            "give it once"
        )
    least = fusion.min_success if min_success is None else min_success
    return 1 if least is None else check_min_success(least, legs=legs)


def check_min_success(min_success: int, *, legs: int) -> int:
    """Return the number if it is valid for the number of legs; otherwise raise."""
    if check_count(min_success, "min_success", least=0) > legs:
        raise ConfigurationError(
            f"min_success must be between 0 and the number of legs, {legs}, got {min_success}"
        )
    return min_success


def weighted_name(name: str, weights: Mapping[str, float]) -> str:
    """Return the name of a leg, with its weight unless all weights are equal.

    Examples:
        >>> weighted_name("law", {"law": 2.0, "web": 1.0}), weighted_name("law", {"law": 2.0})
        ('law (2)', 'law')

    """
    return name if len(set(weights.values())) == 1 else f"{name} ({weights[name]:g})"


def check_languages(languages: Sequence[str]) -> tuple[str, ...]:
    """Return the languages if each is a known code; otherwise raise."""
    given = (languages,) if isinstance(languages, str) else tuple(languages)
    codes = sorted({code for codes in LANGUAGES.values() for code in codes.split()})
    for language in given:
        if str(language).partition("-")[0] not in codes:
            raise ConfigurationError(
                f"languages are codes such as ['en', 'zh'], got {language!r}; "
                f"known: {' '.join(codes)}"
            )
    return given


def weights_for(
    text: str, weights: Mapping[str, float], languages: Mapping[str, Sequence[str]]
) -> Mapping[str, float]:
    """Return the weights of legs for a question, and note in the trace if they differ.

    The share of a leg in the sum of the weights falls to 0.1 for a question in scripts that its
    languages, if it has any, do not use; for a mixed question by the share of such letters. The
    other legs divide the rest as before.

    Examples:
        >>> equal, known = {"vector": 1.0, "keyword": 1.0}, {"vector": ["en"]}
        >>> weights_for("年假有几天", equal, known)
        {'vector': 0.1, 'keyword': 0.9}
        >>> weights_for("annual leave", equal, known)
        {'vector': 1.0, 'keyword': 1.0}

    """
    outside: dict[str, float] = {}
    for leg, codes in languages.items():
        foreign = share_outside(text, codes) if codes and weights.get(leg) else 0.0
        if foreign:
            outside[leg] = foreign
    if not outside:
        return weights
    others = math.fsum(weight for leg, weight in weights.items() if leg not in outside)
    if not others:
        return weights
    whole = math.fsum(weights.values())
    reduced: dict[str, float] = {}
    for leg, foreign in outside.items():
        share = weights[leg] / whole
        reduced[leg] = (1 - foreign) * share + foreign * min(share, _FOREIGN_SHARE)
    left = 1 - math.fsum(reduced.values())
    changed = {leg: reduced.get(leg, left * weight / others) for leg, weight in weights.items()}
    trace = current_context().trace
    if trace is not None:
        named = ", ".join(f"{leg} {weight:.2g}" for leg, weight in changed.items())
        share = max(outside.values())
        trace.notes["weights"] = (
            f"{named}: {share:.0%} of the letters are in no script that the embedding model knows"
        )
    return changed
