"""Links between passages: what they say, derived anew from what a scope sees."""

from collections.abc import Sequence

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows


def test_metadata_gazetteer_and_ner_give_entities() -> None:
    links = PassageLinks(
        entity_fields=["tags"], gazetteer=["tower crane"], ner=lambda text: text.split()[:1]
    )
    node = TextNode(
        id_="n",
        text="Inspect every Tower Crane.",
        metadata={"tags": ["safety", 7], "tenant_id": "t"},
    )
    rows = passage_rows([node], links)
    assert {edge.id for edge in rows.edges} == {
        ("n", "MENTIONS", name) for name in ("Inspect", "safety", "tower crane")
    }
    assert all(node.properties["tenant_id"] == "t" for node in rows.nodes)


@pytest.mark.parametrize(
    "wrong", [{"entity_fields": "tags"}, {"gazetteer": [1]}, {"title_fields": "x"}, {"ner": 7}]
)
def test_passage_link_options_of_a_wrong_type_are_refused(wrong: dict[str, Sequence[str]]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        PassageLinks(**wrong)  # type: ignore[arg-type]
