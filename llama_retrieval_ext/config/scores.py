"""`MinMaxScores`: scores of an answer on one scale."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from llama_retrieval_ext.formulas.normalisation import min_max
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import with_score
from llama_retrieval_ext.results import Hit, score_of


@dataclass(frozen=True, slots=True, repr=False)
class MinMaxScores(Refine):
    """Scores of the answer from 0, for its last hit, to 1; where all are equal, 1 if above 0.

    They depend on ``top_k`` then, and cannot be compared across queries.

    Raises:
        ScoreError: While a query is answered: a hit has no score, or one that is not finite.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> found = FakeRetriever([("a", 9.0), ("b", 6.0), ("c", 5.0)])
        >>> [hit.score for hit in (found >> MinMaxScores()).retrieve("leave")]
        [1.0, 0.25, 0.0]

    """

    fast: ClassVar[bool] = True

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits of the answer with their new scores."""
        answer = hits[: query.top_k]
        scores = {hit.node.node_id: score_of(hit) for hit in answer}
        if len(set(scores.values())) == 1:
            level = 1.0 if next(iter(scores.values())) > 0 else 0.0
            scores = dict.fromkeys(scores, level)
        else:
            scores = min_max(scores)
        return [with_score(hit, scores[hit.node.node_id], hit.contributions) for hit in answer]
