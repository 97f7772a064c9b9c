"""Stages and retrievers for the tests of pipelines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from llama_index.core.schema import QueryBundle

from llama_retrieval_ext import Hit, Query
from llama_retrieval_ext.pipeline import FanOut, Refine, Rewrite
from llama_retrieval_ext.testing import FixedRetriever


@dataclass(frozen=True, slots=True)
class Say(Rewrite):
    """Appends a word to the query, in a new query without its settings."""

    word: str = "please"

    def rewrite(self, query: Query) -> Query:
        return Query(f"{query.query_str} {self.word}")


@dataclass(frozen=True, slots=True)
class Each(FanOut):
    """The query with each of some words, in new queries without its settings."""

    words: tuple[str, ...]

    def fan_out(self, query: Query) -> list[Query]:
        return [Query(f"{query.query_str} {word}") for word in self.words]


class RewriteBy(Rewrite):
    """Returns what a function returns."""

    def __init__(self, function: Callable[[Query], Any]) -> None:
        self.function = function

    def rewrite(self, query: Query) -> str | QueryBundle:
        return self.function(query)  # type: ignore[no-any-return]


class FanOutBy(FanOut):
    """Returns what a function returns."""

    def __init__(self, function: Callable[[Query], Any]) -> None:
        self.function = function

    def fan_out(self, query: Query) -> Sequence[str | QueryBundle]:
        return self.function(query)  # type: ignore[no-any-return]


class RefineBy(Refine):
    """Returns what a function returns, and records the queries."""

    def __init__(self, function: Callable[[Sequence[Hit]], Any]) -> None:
        self.function = function
        self.queries: list[str] = []

    def refine(self, query: Query, hits: Sequence[Hit]) -> Sequence[Hit]:
        self.queries.append(query.query_str)
        return self.function(hits)  # type: ignore[no-any-return]


def raising(error: Exception) -> Callable[[object], NoReturn]:
    """A function that raises the error."""

    def function(_: object) -> NoReturn:
        raise error

    return function


def shouted(query: Query) -> str:
    """The query in capitals."""
    return query.query_str.upper()


def good(name: str = "good") -> FixedRetriever:
    """A retriever with two hits."""
    return FixedRetriever([("a", 0.9), ("b", 0.5)], name=name)


def down(name: str = "down") -> FixedRetriever:
    """A retriever whose source cannot be reached."""
    return FixedRetriever(name=name, error=ConnectionError("no route to host"))
