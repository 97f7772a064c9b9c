"""One question answered by several retrievers, side by side."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.output import three_digits

DEPTH = 10
"""How many passages each retriever returns."""
_SHOWN = 3
_RANK_CELLS = 2
_SCORE_CELLS = 6


@dataclass(frozen=True)
class Comparison:
    """What several retrievers answer to one question.

    Attributes:
        question: What was asked.
        results: The answer of each retriever, by its name.
    """

    question: str
    results: "Mapping[str, ext.SearchResult]"

    def header(self) -> list[str]:
        """The head of the table: a column for each retriever, with its time."""
        return ["document", *(f"{name} {_took(each)}" for name, each in self.results.items())]

    def rows(self) -> Iterator[list[str]]:
        """A row for each document that is among the best of a retriever: rank and score in each.

        A document counts with its best passage. The order is that of the last retriever.
        """
        columns = [best_passages(each) for each in self.results.values()]
        documents = dict.fromkeys(
            name for column in reversed(columns) for name in list(column)[:_SHOWN]
        )
        for name in documents:
            yield [name, *(_cell(column, name) for column in columns)]


def compare(kb: "ext.KnowledgeBase", question: str) -> Comparison:
    """Ask vector, keyword and hybrid search."""
    modes: tuple[Literal["vector", "keyword", "hybrid"], ...] = ("vector", "keyword", "hybrid")
    asked: dict[str, ext.SearchResult] = {
        mode: kb.search(question, mode, top_k=DEPTH) for mode in modes
    }
    return Comparison(question, asked)


def best_passages(result: "ext.SearchResult") -> "dict[str, ext.Hit]":
    """The best hit of each document, best document first, by the document's id."""
    best: dict[str, ext.Hit] = {}
    for hit in result.hits:
        best.setdefault(hit.node.ref_doc_id or hit.node.node_id, hit)
    return best


def _took(result: "ext.SearchResult") -> str:
    seconds = None if result.trace is None else result.trace.duration_s
    return "" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _cell(column: "Mapping[str, ext.Hit]", name: str) -> str:
    if name not in column:
        return f"{'-':>{_RANK_CELLS}}"
    rank, score = list(column).index(name) + 1, three_digits(column[name].score or 0.0)
    return f"{rank:>{_RANK_CELLS}}  {score:>{_SCORE_CELLS}}"
