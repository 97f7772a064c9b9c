"""On which scale a reranker's scores run."""

import math
from enum import Enum

from llama_retrieval_ext.errors import ScoreError

# What rounding may add to a probability.
_ROUNDING = 1e-6


class ScoreKind(Enum):
    """The scale of a reranker's scores, which decides what a threshold on them means.

    Scores are brought to a common scale document by document, never by the best and worst of a
    result: after that, a weak best hit would look perfect.

    Attributes:
        LOGIT: Any number, as of cross-encoders; becomes a probability by the logistic function.
        PROBABILITY: In ``[0, 1]``, comparable between queries.
        UNKNOWN: Any number that only orders; left as it is.
    """

    LOGIT = "logit"
    PROBABILITY = "probability"
    UNKNOWN = "unknown"

    def calibrated(self, score: float) -> float:
        """The score as a probability, where its scale is known; higher is still better.

        Raises:
            ScoreError: The score is not finite, or cannot be of this kind.

        Examples:
            >>> ScoreKind.LOGIT.calibrated(0.0), ScoreKind.UNKNOWN.calibrated(-3.5)
            (0.5, -3.5)

        """
        if not math.isfinite(score):
            raise ScoreError(f"a reranker gave the score {score}; expected a finite number")
        if self is ScoreKind.LOGIT:
            return 0.5 + 0.5 * math.tanh(0.5 * score)  # the logistic function, without overflow
        if self is ScoreKind.PROBABILITY:
            if not -_ROUNDING <= score <= 1.0 + _ROUNDING:
                raise ScoreError(
                    f"a reranker declared to give probabilities gave {score}; "
                    "declare score_kind=ScoreKind.LOGIT or ScoreKind.UNKNOWN"
                )
            return min(max(score, 0.0), 1.0)
        return score

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"
