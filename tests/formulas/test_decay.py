import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.errors import ConfigurationError, ScoreError
from llama_retrieval_ext.formulas.decay import exponential_decay, gaussian_decay, linear_decay
from tests.quick import examples

Decay = Callable[..., float]
every_decay = pytest.mark.parametrize("decay", [exponential_decay, gaussian_decay, linear_decay])
ages = st.floats(-1e6, 1e6) | st.just(math.inf)
half_lives = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)


def test_the_exponential_follows_elasticsearch() -> None:
    assert exponential_decay(7, half_life=30) == pytest.approx(math.exp(math.log(0.5) / 30 * 7))


def test_the_gaussian_follows_elasticsearch() -> None:
    variance = -(30**2) / (2 * math.log(0.5))
    assert gaussian_decay(7, half_life=30) == pytest.approx(math.exp(-(7**2) / (2 * variance)))


def test_the_line_follows_elasticsearch() -> None:
    scale = 30 / (1 - 0.5)
    assert linear_decay(7, half_life=30) == pytest.approx((scale - 7) / scale)


@every_decay
def test_the_factor_is_one_at_age_zero_and_one_half_at_the_half_life(decay: Decay) -> None:
    assert decay(0, half_life=12.5) == 1.0
    assert decay(12.5, half_life=12.5) == 0.5


@every_decay
def test_a_negative_age_has_the_factor_one(decay: Decay) -> None:
    assert decay(-3, half_life=1) == 1.0


@every_decay
def test_an_infinite_age_has_the_factor_zero(decay: Decay) -> None:
    assert decay(math.inf, half_life=1) == 0.0


@every_decay
@examples(50)
@given(ages=st.tuples(ages, ages), half_life=half_lives)
def test_the_factor_is_in_range_and_never_grows_with_age(
    decay: Decay, ages: tuple[float, float], half_life: float
) -> None:
    newer, older = (decay(age, half_life=half_life) for age in sorted(ages))
    assert 1.0 >= newer >= older >= 0.0


@every_decay
@pytest.mark.parametrize("half_life", [0.0, -1.0, math.nan, math.inf])
def test_a_half_life_that_is_not_positive_and_finite_is_refused(
    decay: Decay, half_life: float
) -> None:
    with pytest.raises(ConfigurationError, match="half_life must be finite and above 0"):
        decay(1, half_life=half_life)


@every_decay
def test_an_age_that_is_not_a_number_is_refused(decay: Decay) -> None:
    with pytest.raises(ScoreError, match="age is NaN"):
        decay(math.nan, half_life=1)
