"""`Calibration`: the confidence that the best hit answers, from scores of hybrid search."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final, Self, TypeAlias

from llama_retrieval_ext.formulas.information_gain import information_gain
from llama_retrieval_ext.formulas.logistic_regression import logistic, logistic_regression
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.formulas.scores import sum_of_legs
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.text.tokenizer import Tokenizer
from llama_retrieval_ext.trace import ScoredId

# Ranking of each leg, by its name.
LegScores: TypeAlias = Mapping[str, Sequence[ScoredId]]
# Returns the confidence for a query and the rankings of the legs; None if unknown.
Confidence: TypeAlias = Callable[[Query, LegScores], float | None]

VECTOR: Final = "vector"
KEYWORD: Final = "keyword"
# One model for each possible set of legs that answered.
_ANSWERING: Final = ((VECTOR,), (KEYWORD,), (VECTOR, KEYWORD))
# Hits of each leg that count, for any number of candidates.
DEPTH: Final = 100
# Rank compared with the best hit of a leg; number of hits compared with the best fused one.
_MARGIN: Final = 10
_NEXT: Final = 5
# Strong: weights then vary little between sets of generated questions, without loss on real ones.
_L2: Final = 20.0
_DIGITS: Final = 6

_tokenizer: Final = Tokenizer()


def signals(legs: LegScores, *, terms: int) -> list[float]:
    """Return the features of an estimate.

    For vector search: the best score, and its lead over the tenth. For keyword search: both per
    query term, and the logarithm of the number of terms. For both together: the lead of the best
    summed score over the mean of the next five, which is large if the legs agree.

    Args:
        legs: Ranking of each leg that answered.
        terms: Number of terms in the query, at least 1.

    Examples:
        >>> signals({"vector": [("a", 0.75), ("b", 0.5)]}, terms=3)
        [0.75, 0.25]

    """
    scores = {
        name: [score or 0.0 for _, score in ranking[:DEPTH]] for name, ranking in legs.items()
    }
    numbers: list[float] = []
    if VECTOR in scores:
        near = scores[VECTOR]
        numbers += [near[0] if near else 0.0, information_gain(near, depth=_MARGIN)]
    if KEYWORD in scores:
        margin = information_gain(scores[KEYWORD], terms=terms, depth=_MARGIN)
        numbers += [information_gain(scores[KEYWORD], terms=terms), margin, math.log(terms)]
    return [*numbers, _lead(legs)] if len(scores) > 1 else numbers


def _lead(legs: LegScores) -> float:
    """Return the lead of the best sum of scores (0 to 1 per leg) over the mean of the next."""
    scaled = [
        Normalisation.MIN_MAX.apply({id_: score or 0.0 for id_, score in ranking[:DEPTH]})
        for ranking in legs.values()
    ]
    best, *others = [*sorted(sum_of_legs(scaled).values(), reverse=True)[: _NEXT + 1], 0.0]
    return best - fmean(others) if others else best


@dataclass(frozen=True, slots=True)
class Calibration:
    """Model that estimates from the scores of one collection whether a question is answered.

    Attributes:
        weights: Weights of the `signals`, with the intercept last, by the names of the legs that
            answered, joined by ``+``.
        questions: Number of questions it was fitted on.
        nodes: Number of nodes at that time.
    """

    weights: Mapping[str, Sequence[float]]
    questions: int
    nodes: int

    @classmethod
    def fitted(cls, examples: Iterable[tuple[LegScores, int, bool]], *, nodes: int) -> Self:
        """Fit a calibration to questions with known outcomes.

        Args:
            examples: Rankings of the legs, number of terms of the question, and whether its answer
                was among the candidates. Both legs and both outcomes must occur.
            nodes: Number of nodes in the collection.
        """
        known = list(examples)
        labels = [is_there for *_, is_there in known]
        weights: dict[str, list[float]] = {}
        for names in _ANSWERING:
            rows = [
                signals({name: legs[name] for name in names}, terms=terms)
                for legs, terms, _ in known
            ]
            slopes, intercept = logistic_regression(rows, labels, l2=_L2)
            weights["+".join(names)] = [_rounded(each) for each in (*slopes, intercept)]
        return cls(weights, len(known), nodes)

    def estimate(self, query: Query, legs: LegScores) -> float | None:
        """Return the confidence that the best hit answers the query.

        Args:
            query: The query.
            legs: Ranking of each leg that answered, by its name.

        Returns:
            A number in ``[0, 1]``; 0 if nothing was found. None without legs.
        """
        answering = {name: legs[name] for name in (VECTOR, KEYWORD) if name in legs}
        if not answering:
            return None
        if not any(answering.values()):
            return 0.0
        *slopes, intercept = self.weights["+".join(answering)]
        numbers = signals(answering, terms=n_terms(query.query_str))
        return logistic(math.fsum([*map(float.__mul__, slopes, numbers), intercept]))

    def to_dict(self) -> dict[str, object]:
        """Return the calibration as JSON."""
        weights = {name: list(each) for name, each in self.weights.items()}
        return {"weights": weights, "questions": self.questions, "nodes": self.nodes}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the calibration from the output of `to_dict`.

        Examples:
            >>> calibration = Calibration({"vector": (8.0, 4.0, -5.0)}, questions=400, nodes=1000)
            >>> again = Calibration.from_dict(calibration.to_dict())
            >>> found = {"vector": [("a", 0.75), ("b", 0.5)]}
            >>> round(again.estimate(Query("annual leave"), found), 3)
            0.881

        """
        return cls(**data)


def n_terms(text: str) -> int:
    """Return the number of distinct terms of a query, at least 1."""
    return max(1, len(_tokenizer.query_terms(text)))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
