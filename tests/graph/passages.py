"""Graphs of passages for tests."""

from collections.abc import Iterable

from llama_index.core.schema import TextNode

from llama_retrieval_ext.graph.passage_graph import PassageGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows

FILLER = [(f"f{n}", f"filler {n}", f"nothing of note number {n}") for n in range(60)]


def graph_of(
    passages: Iterable[tuple[str, str, str]], links: PassageLinks | None = None
) -> PassageGraph:
    """Return the graph of passages with an id, a title and a text."""
    nodes = [
        TextNode(id_=id_, text=text, metadata={"title": title}) for id_, title, text in passages
    ]
    links = links or PassageLinks()
    return PassageGraph(*passage_rows(nodes, links), links)
