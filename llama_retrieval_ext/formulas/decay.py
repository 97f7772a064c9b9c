"""Decay: a factor that reduces a score by age, distance or number of hops."""

import math

from llama_retrieval_ext.errors import ConfigurationError, ScoreError
from llama_retrieval_ext.parameters import is_number


def exponential_decay(age: float, *, half_life: float) -> float:
    r"""Return a factor that halves with every half-life.

    .. math:: f(a) = 2^{-a / h}

    Args:
        age: Age, distance or hops, in the unit of ``half_life``. A negative age, as from a clock
            that is ahead, counts as 0; an infinite one gives factor 0.
        half_life: Age at which the factor is one half; finite and above 0.

    Returns:
        Factor in ``[0, 1]``, to multiply a score of 0 or more by.

    Raises:
        ConfigurationError: ``half_life`` is not finite and above 0.
        ScoreError: ``age`` is NaN.

    Source:
        Elasticsearch reference, function score query, decay function ``exp``,
        https://www.elastic.co/guide/en/elasticsearch/reference/current/query-dsl-function-score-query.html#function-decay,
        with scale = ``half_life``, decay = 0.5, offset = 0. Elasticsearch decays on both sides of
        the origin; here negative ages do not decay.

    Examples:
        >>> [exponential_decay(days, half_life=30) for days in (0, 30, 60)]
        [1.0, 0.5, 0.25]

    """
    if not is_number(half_life) or half_life <= 0.0:
        raise ConfigurationError(
            f"half_life must be finite and above 0, got {half_life!r}; it is the age at which a "
            "result counts half"
        )
    if math.isnan(age):
        raise ScoreError("age is NaN; leave the result undecayed when its age is unknown")
    return math.pow(0.5, max(age, 0.0) / half_life)
