"""`BlockingSearcher`: the talks of a `TalkingSearcher`, carried out at once."""

from collections.abc import Sequence

from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.points.wanted import Wanted
from llama_retrieval_ext.stores.qdrant.connection import Connection
from llama_retrieval_ext.stores.qdrant.search import TalkingSearcher


class BlockingSearcher:
    """Asks a collection and waits for the answer; what each method gives and raises stands there.

    Args:
        searcher: Knows what to ask.
        connection: Whom to ask.
    """

    def __init__(self, searcher: TalkingSearcher, connection: Connection) -> None:
        self._searcher = searcher
        self._connection = connection

    def dense(self, embedding: Sequence[float], wanted: Wanted) -> list[Found]:
        """Nearest nodes to an embedding."""
        return self._connection.ask(self._searcher.dense(embedding, wanted))

    def keyword(self, text: str, wanted: Wanted) -> list[Found]:
        """Nodes that share terms with a text, by BM25; each has a score above 0."""
        return self._connection.ask(self._searcher.keyword(text, wanted))

    def both(
        self, embedding: Sequence[float], text: str, *, dense: Wanted, keyword: Wanted
    ) -> tuple[list[Found], list[Found]]:
        """Both of the above in one request."""
        talk = self._searcher.both(embedding, text, dense=dense, keyword=keyword)
        return self._connection.ask(talk)

    def diverse(
        self, embedding: Sequence[float], wanted: Wanted, *, lambda_mult: float, candidates: int
    ) -> list[Found]:
        """Near nodes that do not repeat each other, picked from the nearest by MMR."""
        talk = self._searcher.diverse(
            embedding, wanted, lambda_mult=lambda_mult, candidates=candidates
        )
        return self._connection.ask(talk)
