"""Rules that choose routes by words, patterns, scripts and context."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from llama_retrieval_ext import Query, RouteRule, RuleSelector
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.retrievers import Selection
from tests.cases import cases
from tests.retrievers.routing.sample_routes import CHOICES, Selected

HOLDS: Mapping[str, tuple[RouteRule, str | Query, str | Query]] = {
    "one of some words": (RouteRule("leave", any_of=["Leave", "假"]), "annual LEAVE", "lunch"),
    "one of some Chinese words": (RouteRule("leave", any_of=["leave", "假"]), "年假几天", "食堂"),
    "a pattern": (RouteRule("code", pattern=r"\w+_\w+"), "parse_filters", "parse filters"),
    "a script": (RouteRule("leave", script="han"), "员工年假 leave", "annual leave"),
    "the context": (
        RouteRule("food", context={"page": "menu"}),
        Query("x", context={"page": "menu", "more": 1}),
        Query("x", context={"page": "home"}),
    ),
    "everything it names": (
        RouteRule("code", any_of=["def"], pattern=r"\("),
        "def f(x): pass",
        "def f, nothing else",
    ),
}


@cases(("rule", "yes", "no"), HOLDS.values())
def test_a_rule_holds_when_everything_it_names_does(
    rule: RouteRule, yes: str | Query, no: str | Query, select: Selected
) -> None:
    assert names(select(RuleSelector([rule]), yes)) == [rule.route]
    assert select(RuleSelector([rule]), no) == []


def test_every_rule_that_holds_gives_its_route_once_in_the_order_of_the_rules(
    select: Selected,
) -> None:
    rules = RuleSelector(
        [
            RouteRule("food", any_of=["lunch"], confidence=0.4),
            RouteRule("leave", any_of=["leave"], confidence=0.9),
            RouteRule("food", any_of=["leave"], confidence=0.1),
        ]
    )
    found = select(rules, "leave after lunch")
    assert [(each.name, each.confidence) for each in found] == [("food", 0.4), ("leave", 0.9)]
    assert names(select(rules, "leave")) == ["leave", "food"]


def test_rules_that_cannot_hold_are_refused() -> None:
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: RouteRule("a"), "names no condition"),
        (lambda: RouteRule("a", any_of="word"), "any_of must be a list"),
        (lambda: RouteRule("a", pattern="(", confidence=1.0), "no regular expression"),
        (lambda: RouteRule("a", any_of=["b"], confidence=0.0), "confidence"),
        (lambda: RouteRule("a", any_of=["b"], confidence=1.1), "confidence"),
    ]
    for make, problem in wrong:
        with pytest.raises(ConfigurationError, match=problem):
            make()


def test_a_rule_for_an_unknown_route_is_refused() -> None:
    rules = RuleSelector([RouteRule("travel", any_of=["train"]), RouteRule("code", pattern=".")])
    with pytest.raises(ConfigurationError, match=r"\['travel'\]; there are \['leave', 'code'"):
        rules.check(CHOICES)
    RuleSelector([RouteRule("code", pattern=".")]).check(CHOICES)


def names(selections: Sequence[Selection]) -> list[str]:
    return [selection.name for selection in selections]
