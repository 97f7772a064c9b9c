import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.errors import ConfigurationError, ScoreError
from llama_retrieval_ext.formulas.decay import exponential_decay
from tests.cases import cases
from tests.quick import examples

ages = st.floats(-1e6, 1e6) | st.just(math.inf)
half_lives = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)


def test_the_factor_follows_elasticsearch() -> None:
    assert exponential_decay(7, half_life=30) == pytest.approx(math.exp(math.log(0.5) / 30 * 7))
    assert [exponential_decay(age, half_life=1) for age in (-3, math.inf)] == [1.0, 0.0]


@examples(50)
@given(ages=st.tuples(ages, ages), half_life=half_lives)
def test_the_factor_is_in_range_and_never_grows_with_age(
    ages: tuple[float, float], half_life: float
) -> None:
    newer, older = (exponential_decay(age, half_life=half_life) for age in sorted(ages))
    assert 1.0 >= newer >= older >= 0.0


@cases("half_life", [0.0, math.nan, math.inf])
def test_a_half_life_that_is_not_positive_and_finite_is_refused(half_life: float) -> None:
    with pytest.raises(ConfigurationError, match="half_life must be finite and above 0"):
        exponential_decay(1, half_life=half_life)


def test_an_age_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ScoreError, match="age is NaN"):
        exponential_decay(math.nan, half_life=1)
