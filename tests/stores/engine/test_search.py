"""Searches of an engine: equal scores at the cut."""

from collections.abc import Sequence

from llama_index.core.schema import TextNode

from llama_retrieval_ext.execution.drivers import drive
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.stores.engine.backend import Candidate, KeywordQuery, Search, VectorQuery
from llama_retrieval_ext.stores.engine.search import EngineRequest, EngineSearch, NativeSearch
from llama_retrieval_ext.stores.engine.steps import Steps


class Shrinking(EngineSearch[None, NativeSearch, str]):
    """An engine whose nodes are all equally good; each request finds what the next list has."""

    def __init__(self, *pages: Sequence[str]) -> None:
        super().__init__()
        self.left = list(pages)

    def compile(self, condition: Condition) -> None:
        """There are no conditions here."""

    def vector_search(
        self, query: VectorQuery, request: EngineRequest[None]
    ) -> NativeSearch | None:
        """No vectors."""
        return None

    def keyword_search(self, query: KeywordQuery, request: EngineRequest[None]) -> NativeSearch:
        """As many as the query says."""
        return NativeSearch(top_k=query.search.top_k, score=float)

    def pages(
        self, searches: Sequence[NativeSearch], limits: Sequence[int], *, with_nodes: bool
    ) -> Steps[list[list[str]]]:
        """The next list."""
        yield from ()
        return [list(self.left.pop(0))[:limit] for limit in limits]

    def raw_scores(self, hits: Sequence[str]) -> list[float]:
        """All alike."""
        return [1.0] * len(hits)

    def candidate(self, hit: str, score: float) -> Candidate:
        """A node by its id."""
        return Candidate(TextNode(id_=hit), score)


def ids(engine: Shrinking, top_k: int) -> list[str]:
    request = engine.request(KeywordQuery("words", Search(top_k)))
    (ranking,) = drive(engine.search([request]), lambda _: None)
    return [each.node_id for each in ranking]


def test_equal_scores_at_the_cut_go_by_id() -> None:
    assert ids(Shrinking("edcba", "edcba"), 2) == ["a", "b"]


def test_nodes_that_are_deleted_between_two_requests_are_missing_and_nothing_else() -> None:
    assert ids(Shrinking("edcba", "c"), 3) == ["c"]
    assert ids(Shrinking("edcba", ""), 3) == []
