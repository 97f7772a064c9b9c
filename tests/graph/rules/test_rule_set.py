"""Rules that use the conclusions of others."""

import pytest

from llama_retrieval_ext.errors import RuleCycleError, RuleError
from llama_retrieval_ext.graph.rules.yaml import parse_rules


def chained(*pairs: tuple[str, str]) -> str:
    """Rules that each conclude one relation from another."""
    return "rules:\n" + "".join(
        f"  - id: {made}\n"
        f"    match: [{{node: a}}, {{follow: {used}, node: b}}]\n"
        "    then: '{a} {b}'\n"
        f"    concludes: {{from: a, relation: {made}, to: b}}\n"
        for used, made in pairs
    )


def test_rules_that_need_each_other_are_refused() -> None:
    with pytest.raises(RuleCycleError, match="A -> B -> A") as caught:
        parse_rules(chained(("B", "A"), ("A", "B")))
    assert caught.value.rules == ("A", "B", "A")


def test_a_chain_of_more_than_four_rules_is_refused() -> None:
    parse_rules(chained(("X", "A"), ("A", "B"), ("B", "C"), ("C", "D")))
    with pytest.raises(RuleError, match="longer than 4"):
        parse_rules(chained(("X", "A"), ("A", "B"), ("B", "C"), ("C", "D"), ("D", "E")))
