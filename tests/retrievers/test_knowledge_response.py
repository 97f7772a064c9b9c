"""Items, policies and responses of a knowledge search."""

from types import MappingProxyType

import pytest

from llama_retrieval_ext import KnowledgePolicy, RetrievalItem
from llama_retrieval_ext.errors import ConfigurationError


def test_an_item_has_any_mapping_as_metadata() -> None:
    item = RetrievalItem("text", "vector", 2, 0.5, MappingProxyType({"year": 2024}))
    assert item.to_dict()["metadata"] == {"year": 2024}


@pytest.mark.parametrize(
    "wrong", [{"case_threshold": 2.0}, {"case_top_k": 0}, {"priorities": {"kg_rule": 1}}]
)
def test_a_policy_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        KnowledgePolicy(**wrong)  # type: ignore[arg-type]  # on purpose
