"""Decay: factors that reduce a score by age, distance or number of hops.

The three curves of Elasticsearch with its default ``decay`` of 0.5: all start at 1 and reach one
half at the half-life. Before the half-life the Gaussian curve is the highest, after it the
exponential one.
"""

import math

from llama_retrieval_ext.errors import ConfigurationError, ScoreError


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
    return math.pow(0.5, _half_lives(age, half_life))


def gaussian_decay(age: float, *, half_life: float) -> float:
    r"""Return a factor that falls slowly at first, then fast.

    .. math:: f(a) = 2^{-(a / h)^2}

    Args:
        age: Age, distance or hops, in the unit of ``half_life``. A negative age counts as 0; an
            infinite one gives factor 0.
        half_life: Age at which the factor is one half; finite and above 0.

    Returns:
        Factor in ``[0, 1]``, to multiply a score of 0 or more by.

    Raises:
        ConfigurationError: ``half_life`` is not finite and above 0.
        ScoreError: ``age`` is NaN.

    Source:
        As `exponential_decay`, decay function ``gauss``.

    Examples:
        >>> [gaussian_decay(days, half_life=30) for days in (0, 30, 60)]
        [1.0, 0.5, 0.0625]

    """
    half_lives = _half_lives(age, half_life)
    return math.pow(0.5, half_lives * half_lives)


def linear_decay(age: float, *, half_life: float) -> float:
    r"""Return a factor that falls linearly and is 0 from twice the half-life on.

    .. math:: f(a) = \max\left(0, 1 - \frac{a}{2h}\right)

    Args:
        age: Age, distance or hops, in the unit of ``half_life``. A negative age counts as 0; an
            infinite one gives factor 0.
        half_life: Age at which the factor is one half; finite and above 0.

    Returns:
        Factor in ``[0, 1]``, to multiply a score of 0 or more by.

    Raises:
        ConfigurationError: ``half_life`` is not finite and above 0.
        ScoreError: ``age`` is NaN.

    Source:
        As `exponential_decay`, decay function ``linear``.

    Examples:
        >>> [linear_decay(days, half_life=30) for days in (0, 30, 60, 90)]
        [1.0, 0.5, 0.0, 0.0]

    """
    return max(0.0, 1.0 - _half_lives(age, half_life) / 2.0)


def _half_lives(age: float, half_life: float) -> float:
    if not 0.0 < half_life < math.inf:
        raise ConfigurationError(
            f"half_life must be finite and above 0, got {half_life}; it is the age at which a "
            "result counts half"
        )
    if math.isnan(age):
        raise ScoreError("age is NaN; leave the result undecayed when its age is unknown")
    return max(age, 0.0) / half_life
