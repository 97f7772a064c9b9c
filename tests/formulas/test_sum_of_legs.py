from functools import reduce
from itertools import permutations
from operator import add

from llama_retrieval_ext.formulas.scores import sum_of_legs


def test_ids_missing_from_a_leg_get_nothing_from_it() -> None:
    assert sum_of_legs([{"a": 0.25, "b": 0.5}, {"b": 0.125, "c": 1.0}]) == {
        "a": 0.25,
        "b": 0.5 + 0.125,
        "c": 1.0,
    }


def test_the_sum_does_not_depend_on_the_order_of_the_legs() -> None:
    legs = [{"a": 0.1}, {"a": 0.2}, {"a": 0.3}, {"a": -0.6}]
    plain = {reduce(add, order) for order in permutations([0.1, 0.2, 0.3, -0.6])}
    assert len(plain) > 1  # as they do
    assert len({sum_of_legs(order)["a"] for order in permutations(legs)}) == 1


def test_no_legs_and_empty_legs_give_nothing() -> None:
    assert sum_of_legs([]) == {}
    assert sum_of_legs([{}, {}]) == {}
    assert sum_of_legs([{}, {}, {}]) == {}


def test_the_legs_are_left_as_they_are() -> None:
    leg = {"a": 1.0}
    total = sum_of_legs([leg])
    total["a"] = 2.0
    sum_of_legs([leg, {"a": 5.0}])
    assert leg == {"a": 1.0}
