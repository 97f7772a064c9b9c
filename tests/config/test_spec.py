"""Pipelines as data, and back."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_retrieval_ext import MMR, RRF, RouteRule, RuleRerank, Top
from llama_retrieval_ext.config import from_yaml, to_yaml, validate_yaml
from llama_retrieval_ext.errors import ConfigFileError, ConfigurationError
from llama_retrieval_ext.retrievers.intent import default_intent_profiles, default_intent_rules
from tests import test_arguments as expressions
from tests.config.files import BOUND, LIVE, document
from tests.quick import examples


@pytest.mark.slow
def test_yaml_and_back_is_the_identity(subtests: pytest.Subtests) -> None:
    for part in [make() for make in expressions.SAMPLES]:
        with subtests.test(part=part):
            text = to_yaml(part, live=LIVE)
            assert validate_yaml(text, BOUND) == []
            again = from_yaml(text, BOUND)
            assert type(again) is type(part)
            assert repr(again) == repr(part)
            assert to_yaml(again, live=LIVE) == text


def test_profiles_and_rules_of_intents_are_written_and_read() -> None:
    rules = default_intent_rules()
    assert repr(from_yaml(to_yaml(rules), BOUND)) == repr(rules)
    for profile in default_intent_profiles().values():
        assert from_yaml(to_yaml(profile), BOUND) == profile


names = st.text(min_size=1, max_size=8)
weights = st.dictionaries(names, st.floats(0, 1e6), max_size=3)


stages = st.one_of(
    st.builds(Top, st.integers(1, 10**6)),
    st.builds(RRF, k=st.floats(0, 1e6), weights=weights),
    st.builds(MMR, st.floats(0, 1), top_k=st.none() | st.integers(1, 99)),
    st.builds(lambda key: RuleRerank(title_key=key), names),
    st.builds(
        lambda word, context: RouteRule("a", any_of=[word], context=context),
        names,
        st.dictionaries(
            st.sampled_from(["type", "ref", "env", "map", "text", "tuple", "on", "x"]),
            names | st.sampled_from(["linear", "Normalisation.Z_SCORE", "null", "1", "yes"]),
            max_size=2,
        ),
    ),
)


@pytest.mark.slow
@given(stages)
@settings(examples(40), derandomize=True)
def test_stages_with_any_values_survive_yaml(stage: object) -> None:
    again = from_yaml(to_yaml(stage), BOUND)
    assert repr(again) == repr(stage)


def test_live_objects_without_a_name_and_cycles_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'embed_model' of MMR contains .*live="):
        to_yaml(MMR(embed_model=expressions.MODEL))
    nested: dict[str, Any] = {}
    nested["again"] = nested
    with pytest.raises(ConfigurationError, match="contains itself"):
        to_yaml(RouteRule("a", any_of=["x"], context=nested))
    with pytest.raises(ConfigFileError, match="nothing is bound as 'models'; there is"):
        from_yaml(document("{type: EmbeddingRerank, embed_model: {ref: models}}"), BOUND)
