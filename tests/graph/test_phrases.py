"""Names and words in passages."""

from llama_index.core.schema import TextNode

from llama_retrieval_ext.graph.passage_graph import PassageGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from llama_retrieval_ext.graph.phrases import phrases, words


def test_phrases_of_hostile_text_are_read_in_linear_time() -> None:
    for text in (
        "A " * 20_000,
        "《" * 20_000,
        "\ud800\x00" * 1_000,
        "Of the " * 10_000,
        "深" * 20_000,
    ):
        phrases(text)
        words(text)
        nodes = [TextNode(text=text, metadata={"title": title}) for title in (text[:200], "b")]
        links = PassageLinks()
        PassageGraph(*passage_rows(nodes, links), links)
