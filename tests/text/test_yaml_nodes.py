"""Texts in YAML that Python cannot encode are refused with their place."""

import pytest

from llama_retrieval_ext.errors import RuleSyntaxError
from llama_retrieval_ext.graph.rules.yaml import parse_rules


@pytest.mark.parametrize(
    "text", ['rules: ["\\ud800"]', 'rules:\n  - name: "\\uD800"', "rules: \ud800"]
)
def test_half_of_a_surrogate_pair_is_a_syntax_error(text: str) -> None:
    with pytest.raises(RuleSyntaxError):
        parse_rules(text)
