"""Routing by rules, without a model."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llama_retrieval_ext.checks import Part
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.parameters import Portion
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.routing.selectors import Choice, Selection, Selector
from llama_retrieval_ext.text.normalization import RANGES, dominant_script


@dataclass(frozen=True, slots=True, repr=False)
class RouteRule(Part):
    """Rule that sends a query to a route if all its conditions hold.

    Args:
        route: Name of the route.
        any_of: At least one of these occurs in the query (case-insensitive).
        pattern: Regular expression that matches in the query.
        script: Main script of the query: ``han`` for Chinese, ``kana`` for Japanese, ``hangul`` for
            Korean, ``latin``, ... Languages with the same script, such as English and German, are
            not distinguished: for these use ``any_of`` or ``pattern`` with words of only one
            language, or set the language in ``context``.
        context: Values that the query's ``context`` must have.
        confidence: Confidence of the rule, in ``(0, 1]``.

    Raises:
        ConfigurationError: The rule has no condition, or one that can never hold.
    """

    route: str
    any_of: Sequence[str] = ()
    pattern: str | None = None
    script: str | None = None
    context: Mapping[str, object] = field(default_factory=dict)
    confidence: Portion = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "any_of", tuple(self.any_of))
        if not any((self.any_of, self.pattern, self.script, self.context)):
            raise ConfigurationError(
                f"the rule for {self.route!r} names no condition; "
                "for a route that is always right, make it the router's fallback"
            )
        if self.script not in (None, "none", *RANGES):
            raise ConfigurationError(
                f"no query is written in the script {self.script!r}; write one of "
                f"{', '.join(map(repr, RANGES))}"
            )
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise ConfigurationError(
                f"the pattern {self.pattern!r} of the rule for {self.route!r} is no regular "
                f"expression: {error}"
            ) from error

    def holds(self, query: Query) -> bool:
        """Return whether the query satisfies every condition."""
        text = query.query_str
        folded = text.casefold()
        return (
            (not self.any_of or any(word.casefold() in folded for word in self.any_of))
            and (self.pattern is None or re.search(self.pattern, text) is not None)
            and (self.script is None or dominant_script(text) == self.script)
            and all(query.context.get(key) == value for key, value in self.context.items())
        )


class RuleSelector(Selector):
    r"""Selector of the routes whose rules hold, in the order of the rules.

    It abstains if no rule holds.

    Args:
        rules: Rules in order of precedence.

    Examples:
        >>> rules = RuleSelector([RouteRule("code", pattern=r"[a-z]+_[a-z]+")])
        >>> rules
        RuleSelector([RouteRule(route='code', pattern='[a-z]+_[a-z]+')])
        >>> german = RouteRule("german", pattern=r"(?i)\b(der|die|das|und|wie|für)\b")
        >>> german.holds(Query("Wie viel Urlaub?")), german.holds(Query("days of leave"))
        (True, False)

    """

    def __init__(self, rules: Sequence[RouteRule]) -> None:
        self.rules = tuple(rules)

    def check(self, choices: Sequence[Choice]) -> None:
        """Raise if a rule names an unknown route."""
        names = [choice.name for choice in choices]
        unknown = sorted({rule.route for rule in self.rules} - set(names))
        if unknown:
            raise ConfigurationError(f"rules name the routes {unknown}; there are {names}")

    def select(self, query: Query, choices: Sequence[Choice]) -> list[Selection]:
        """Return the routes whose rules hold."""
        del choices  # checked before
        held = {rule.route: rule for rule in reversed(self.rules) if rule.holds(query)}
        return [
            Selection(rule.route, rule.confidence, "a rule holds")
            for rule in self.rules
            if held.get(rule.route) is rule
        ]
