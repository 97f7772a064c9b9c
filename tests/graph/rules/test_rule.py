"""A rule checks its references, and fills in its conclusion."""

from typing import Any

import pytest

from llama_retrieval_ext.errors import RuleError
from llama_retrieval_ext.graph.rules.rule import Concludes, Pattern, Rule, Step, Where

HAS = Step("p", ("HAS",), "h")
MAYBE = Step("h", ("MITIGATES",), "m", optional=True)


def test_a_conclusion_has_names_properties_and_the_text_for_what_is_missing() -> None:
    rule = Rule(
        "a", Pattern("p", steps=(HAS, MAYBE)), "{p}: {{{h.levels}}}, {m}, {h.x}", missing="-"
    )
    text = rule.text({"p": "pit", "h": "flood"}, {"h": {"levels": [1, 2]}})
    assert text == "pit: {1, 2}, -, -"


@pytest.mark.parametrize(
    ("pattern", "options", "message"),
    [
        (Pattern("p", steps=(Step("x", ("A",), "y"),)), {}, "leaves 'x'"),
        (Pattern("p", steps=(Step("p", (), "y"),)), {}, "names no relation type"),
        (Pattern("p", steps=(HAS, Step("p", ("A",), "h", optional=True))), {}, "bound already"),
        (
            Pattern("p", steps=(HAS, MAYBE), unless=(Step("p", ("A",), "m"),)),
            {},
            "only an optional",
        ),
        (Pattern("p", steps=(HAS,), where=(Where("q", "x", value=1),)), {}, "on 'q'"),
        (Pattern("p", steps=(HAS,) * 99), {}, "more than"),
        (Pattern("p", steps=(HAS, MAYBE)), {"concludes": Concludes("p", "R", "m")}, "at 'm'"),
        (Pattern("p"), {"priority": 0}, "priority must be at least 1"),
        (Pattern("p"), {"confidence": 0.0}, "confidence must be in"),
        (Pattern("p"), {"then": "{q}"}, "names 'q'"),
    ],
)
def test_a_rule_with_an_unknown_reference_is_refused(
    pattern: Pattern, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RuleError, match=f"rule 'a': .*{message}"):
        Rule("a", pattern, **{"then": "{p}", **options})
