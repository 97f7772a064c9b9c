"""A result with hostile text in all its parts, and what a rich console prints."""

import io

from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from rich.console import Console

from llama_retrieval_ext import Contribution, Hit, SearchResult
from llama_retrieval_ext.trace import Degradation, Trace

MARKUP = "<script>alert('[bold]')</script>"


def full_result() -> SearchResult:
    node = TextNode(
        id_="n1",
        text=f"{MARKUP} annual leave " * 40,
        metadata={"file_name": "handbook.pdf", "page": 3, "lang": "<en>"},
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="handbook.pdf_part_2")},
    )
    parts = (
        Contribution("vector", 2, 1 / 3, 0.5, 1 / 62),
        Contribution("keyword", 1, 7.25, 0.5, 1 / 61),
    )
    first = Hit(node=node, score=2 / 3, source="hybrid", contributions=parts)
    second = Hit(
        node=TextNode(id_="n2", text="lunch"), score=0.5, source="hybrid", contributions=parts[:1]
    )
    trace = Trace("hybrid", duration_s=0.0123, count=2)
    trace.children.append(Trace("<vector>", duration_s=0.002, error="OSError: <down>"))
    return SearchResult(
        [first, second], (Degradation("reranker", "TimeoutError: <late>"),), trace, query="<leave>"
    )


def printed(value: object) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(value)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
