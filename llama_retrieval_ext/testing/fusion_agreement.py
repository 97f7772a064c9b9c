"""Check that an engine fuses two rankings as this package does."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from llama_retrieval_ext.execution.context import call
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.pipeline.fusion import Fusion, LegRanking
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.engine.backend import Backend, Candidate, Search, hybrid_backend
from llama_retrieval_ext.stores.engine.pushdown import LEGS, FusedSearch, NativeFusion

# Engines compute in 32 bits.
TOLERANCE = 1e-6
# The deviation of scores that are close together loses more precision.
_BY_DISTRIBUTION = 5e-6


@dataclass(frozen=True, slots=True)
class SearchCase:
    """Hybrid search: the queries of both legs, and the condition on nodes."""

    embedding: Sequence[float]
    text: str
    search: Search


@dataclass(frozen=True, slots=True)
class Share:
    """Minimum and maximum share of a node in a leg: the order of ties is open."""

    low: float
    high: float

    def __add__(self, other: "Share") -> "Share":
        return Share(self.low + other.low, self.high + other.high)

    @property
    def size(self) -> float:
        """The maximum absolute value."""
        return max(abs(self.low), abs(self.high))


_NOTHING = Share(0.0, 0.0)


def sample_fusions(native: NativeFusion, *, candidates: int) -> Iterator[FusedSearch]:
    """Yield fusions of a kind that an engine declares, with several constants and weights."""
    weights = [(1.0, 1.0), (0.5, 0.5)]
    if not native.equal_weights:
        weights += [(3.0, 1.0), (0.2, 0.8)]
    fusions: list[Fusion] = []
    if issubclass(native.kind, RRF):
        fusions += [RRF(k=native.least_k), RRF(), RRF(k=min(native.most_k, 1000))]
    elif native.scales is not None:
        fusions.append(WeightedSum(normalise=dict(zip(LEGS, native.scales, strict=True))))
    for fusion in fusions:
        for pair in weights:
            yield FusedSearch(fusion, pair, candidates)


def assert_fusion_agrees(backend: Backend, case: SearchCase, how: FusedSearch) -> None:
    """Fail unless the engine's ranking is one that our fusion of both legs can give.

    If no two nodes tie in a leg, there is exactly one such ranking, up to equal fused scores.
    Scores may differ by a millionth of the legs' shares, for distribution fusion by five.
    """
    tolerance = _BY_DISTRIBUTION if _by_distribution(how) else TOLERANCE
    fused = run(call(hybrid_backend(backend).fused(case.embedding, case.text, case.search, how)))
    native = next(n for n in backend.features.fusions if n.is_as(how.fusion, how.weights))
    everything = replace(case.search, top_k=1_000)
    searches = (backend.dense(case.embedding, everything), backend.keyword(case.text, everything))
    legs = [run(call(search)) for search in searches]
    cuts = [how.candidates, math.inf if native.whole_keyword_leg else how.candidates]
    shares = [
        _shares(leg, cut, how, index)
        for index, (leg, cut) in enumerate(zip(legs, cuts, strict=True))
    ]
    ids = shares[0].keys() | shares[1].keys()
    total = {id_: shares[0].get(id_, _NOTHING) + shares[1].get(id_, _NOTHING) for id_ in ids}
    slack = {id_: tolerance * sum(share.get(id_, _NOTHING).size for share in shares) for id_ in ids}

    keys = [(-hit.score, hit.node_id) for hit in fused]
    assert keys == sorted(keys), "best first, equal scores by node id"
    assert len(set(_ids(fused))) == len(fused), "no node twice"
    assert all(matches(case.search.condition, hit.node.metadata) for hit in fused)
    for hit in fused:
        share = total[hit.node_id]
        near = slack[hit.node_id]
        assert share.low - near <= hit.score <= share.high + near, (hit, share, how)
    certain = _certain(legs, cuts)
    assert len(fused) >= min(case.search.top_k, len(certain))
    assert len(fused) <= case.search.top_k
    if len(fused) == case.search.top_k:
        worst = fused[-1].score
        for id_ in certain - set(_ids(fused)):
            assert total[id_].low <= worst + slack[id_], (id_, total[id_], worst, how)


def _shares(
    leg: Sequence[Candidate], cut: float, how: FusedSearch, index: int
) -> Mapping[str, Share]:
    """Return the shares of all possible candidates of a leg."""
    if not leg:
        return {}
    cut_leg = leg if cut == math.inf else leg[: int(cut)]
    by_score = [] if how.by_rank else _share_by_score(cut_leg, how, index)
    # Scores that are equal but for rounding have its deviation, and so any share.
    is_noise = _by_distribution(how) and _rank_range(cut_leg, cut_leg[0])[1] == len(cut_leg)
    shares = {}
    for hit in leg:
        better, as_good = _rank_range(leg, hit)
        if better >= cut:
            continue
        if is_noise:
            worst, best = 0.0, how.weights[index] / sum(how.weights)
        elif how.by_rank is None:
            at = min(bisect_left(by_score, (-hit.score, -math.inf)), len(by_score) - 1)
            worst = best = by_score[at][1]
        else:
            k, weight = how.by_rank.k, how.weights[index]
            worst = weight / (k + as_good)
            best = weight / (k + better + 1)
        if as_good > cut:  # may not be among the candidates
            worst, best = min(worst, 0.0), max(best, 0.0)
        shares[hit.node_id] = Share(min(worst, best), max(worst, best))
    return shares


def _by_distribution(how: FusedSearch) -> bool:
    return Normalisation.DISTRIBUTION_BASED in (how.scales or ())


def _share_by_score(
    leg: Sequence[Candidate], how: FusedSearch, index: int
) -> list[tuple[float, float]]:
    """Return negated, rising scores, each with its share."""
    # Passes both legs, one empty, because a weighted sum divides by all weights.
    rankings = [
        LegRanking(name, {hit.node_id: hit.score for hit in leg} if at == index else {}, weight)
        for at, (name, weight) in enumerate(zip(LEGS, how.weights, strict=True))
    ]
    shares = how.fusion.shares(rankings)[index]
    return [(-hit.score, shares[hit.node_id]) for hit in leg]


def _rank_range(leg: Sequence[Candidate], candidate: Candidate) -> tuple[int, int]:
    """Return how many candidates are better, and how many at least as good."""
    near = TOLERANCE * max(1.0, abs(candidate.score))
    better = bisect_left(leg, -candidate.score - near, key=_falling)
    return better, bisect_right(leg, -candidate.score + near, key=_falling)


def _falling(candidate: Candidate) -> float:
    return -candidate.score


def _certain(legs: Sequence[Sequence[Candidate]], cuts: Sequence[float]) -> set[str]:
    """Return the nodes that are candidates for any order of ties."""
    return {
        hit.node_id
        for leg, cut in zip(legs, cuts, strict=True)
        for hit in leg
        if _rank_range(leg, hit)[1] <= cut
    }


def _ids(candidates: Sequence[Candidate]) -> list[str]:
    return [candidate.node_id for candidate in candidates]
