"""Paired significance tests of two systems on the same queries, and Holm's correction."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from llama_retrieval_ext.checks import check_count

# Sign patterns at a time, which bounds the memory.
_BATCH: Final = 1000


def standard_error(differences: Sequence[float]) -> float:
    """Return the standard error of the mean of paired differences; infinite for fewer than two.

    Args:
        differences: One per query.

    Examples:
        >>> round(standard_error([0.1, 0.3, 0.2, 0.2]), 4)
        0.0408

    """
    if len(differences) < 2:  # noqa: PLR2004 - a deviation needs two
        return float("inf")
    return float(np.std(differences, ddof=1) / np.sqrt(len(differences)))


def paired_t_test(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of Student's paired t-test.

    Args:
        differences: One per query.

    Returns:
        In [0, 1]; 1 if there are fewer than two differences, or all are 0.

    Source:
        Student, "The Probable Error of a Mean", Biometrika 6(1), 1908; for retrieval: Smucker,
        Allan and Carterette, CIKM 2007, https://doi.org/10.1145/1321440.1321528.

    Examples:
        >>> round(paired_t_test([0.1, 0.3, 0.2, 0.2]), 4)
        0.0163

    """
    values = np.asarray(differences, dtype=float)
    if len(values) < 2 or not values.any():  # noqa: PLR2004 - a deviation needs two
        return 1.0
    if np.ptp(values) == 0.0:  # no deviation at all
        return 0.0
    from scipy.stats import ttest_rel  # noqa: PLC0415 - slow to import

    return float(ttest_rel(values, np.zeros(len(values))).pvalue)


def randomisation_test(
    differences: Sequence[float], *, rounds: int = 10_000, seed: int = 0
) -> float:
    r"""Return the two-sided p-value of Fisher's paired randomisation test.

    If the systems are equal, each difference may have either sign: the p-value is the share of sign
    patterns whose mean is at least as far from 0 as the observed mean.

    Args:
        differences: One per query.
        rounds: Number of random sign patterns; if there are no more patterns than that (as with up
            to 13 differences by default), all are used.
        seed: Random seed for the patterns.

    Returns:
        In (0, 1]; for random patterns :math:`(1 + c) / (1 + n)`, so never 0.

    Raises:
        ConfigurationError: ``rounds`` is below 1.

    Source:
        Smucker, Allan and Carterette, "A Comparison of Statistical Significance Tests for
        Information Retrieval Evaluation", CIKM 2007, https://doi.org/10.1145/1321440.1321528.

    Examples:
        >>> randomisation_test([0.1, 0.3, 0.2, 0.2])
        0.125

    """
    check_count(rounds, "rounds")
    values = np.asarray(differences, dtype=float)
    if len(values) < 2 or not values.any():  # noqa: PLR2004 - one difference has no other sum
        return 1.0
    from scipy.stats import permutation_test  # noqa: PLC0415 - slow to import

    flips = permutation_test(
        (values,),
        np.mean,
        permutation_type="samples",
        n_resamples=rounds,
        batch=_BATCH,
        rng=np.random.default_rng(seed),
    )
    return float(flips.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number, by Holm's step-down method.

    Args:
        p_values: P-values of one family of comparisons.

    Returns:
        In the same order; each at least the uncorrected value and at most 1.

    Source:
        Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of
        Statistics 6(2), 1979.

    Examples:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]

    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for position, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - position)))
        corrected[index] = largest
    return corrected
