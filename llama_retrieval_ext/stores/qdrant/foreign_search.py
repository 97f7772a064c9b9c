"""Searches of a collection that LlamaIndex's `QdrantVectorStore` made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from qdrant_client import models

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.stores.backend import Asked, Dense, Found, Search
from llama_retrieval_ext.stores.nodes.vectors import query_vector
from llama_retrieval_ext.stores.points.clauses import Clause
from llama_retrieval_ext.stores.qdrant.failures import CollectionMissingError
from llama_retrieval_ext.stores.qdrant.flat_conditions import flat_clause_of
from llama_retrieval_ext.stores.qdrant.foreign import ForeignStore
from llama_retrieval_ext.stores.qdrant.layout import Layout, score_of
from llama_retrieval_ext.stores.qdrant.questions import Asker, Question
from llama_retrieval_ext.stores.qdrant.talk import Talk
from llama_retrieval_ext.stores.qdrant.written import as_filter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FlatWanted:
    """What a search is told besides what to look for, as clauses on LlamaIndex's payload.

    Attributes:
        top_k: How many to return, at least 1.
        clause: What each must match; None for everything.
        corpus: The nodes that the rarity of terms is measured on; None for all.
    """

    top_k: int
    clause: Clause | None
    corpus: Clause | None


def flat_wanted(search: Search) -> FlatWanted:
    """What a search of a backend asks for.

    Raises:
        UnsupportedFilterError: Its condition cannot be exact on this payload.
    """
    condition, scope = search.condition, search.scope
    return FlatWanted(
        search.top_k,
        None if condition is None else flat_clause_of(condition),
        None if scope is None else flat_clause_of(scope.condition),
    )


class ForeignSearcher:
    """Talks that search. Rankings come best first, equal scores by node id; no collection gives [].

    Args:
        store: LlamaIndex's store.
    """

    def __init__(self, store: ForeignStore) -> None:
        self._store = store
        connection = store.connection
        self._asker = Asker(
            store.collection,
            store.read,
            payload=True,
            grain=connection.grain,
            slack=connection.slack,
        )

    def dense(self, embedding: Sequence[float], wanted: FlatWanted) -> Talk[list[Found]]:
        """Nearest nodes to an embedding.

        Raises:
            ConfigurationError: A value of it is not finite.
            DimensionMismatchError: It has another dimension than the collection.
            UnsupportedFilterError: The server is too old for the filter.
        """

        def talk(layout: Layout) -> Talk[list[Found]]:
            question = self._nearest(embedding, wanted, layout)
            return (yield from self._asker.rankings([question]))[0]

        return self._if_there(talk, empty=[])

    def keyword(self, text: str, wanted: FlatWanted) -> Talk[list[Found]]:
        """Nodes whose sparse vectors agree with that of a text.

        Raises:
            UnsupportedModeError: The collection has no sparse vectors.
            UnsupportedFilterError: The server is too old for the filter.
        """

        def talk(layout: Layout) -> Talk[list[Found]]:
            question = yield from self._sharing(text, wanted, layout)
            return [] if question is None else (yield from self._asker.rankings([question]))[0]

        return self._if_there(talk, empty=[])

    def batch(self, asked: Sequence[tuple[Asked, FlatWanted]]) -> Talk[list[list[Found]]]:
        """Any number of them in one request.

        Args:
            asked: Each with how many it wants, and which.

        Raises:
            ConfigurationError: A value of an embedding is not finite.
            DimensionMismatchError: An embedding has another dimension than the collection.
            UnsupportedModeError: The collection has no sparse vectors.
            UnsupportedFilterError: The server is too old for a filter.
        """

        def talk(layout: Layout) -> Talk[list[list[Found]]]:
            questions: list[Question | None] = []
            for each, wanted in asked:
                if isinstance(each, Dense):
                    questions.append(self._nearest(each.embedding, wanted, layout))
                else:
                    questions.append((yield from self._sharing(each.text, wanted, layout)))
            some = [each for each in questions if each is not None]
            found = iter((yield from self._asker.rankings(some)) if some else [])
            return [[] if each is None else next(found) for each in questions]

        return self._if_there(talk, empty=[[] for _ in asked])

    def _if_there(self, talk: Callable[[Layout], Talk[T]], *, empty: T) -> Talk[T]:
        layout = yield from self._store.layout()
        if layout is None:
            return empty
        try:
            return (yield from talk(layout))
        except CollectionMissingError:
            self._store.forget()
            return empty

    def _nearest(self, embedding: Sequence[float], wanted: FlatWanted, layout: Layout) -> Question:
        is_cosine = layout.distance is models.Distance.COSINE
        vector = query_vector(
            embedding,
            dimension=layout.dimension,
            distance="cosine" if is_cosine else "dot",
            where=self._store.where,
        )
        score, filter_ = score_of(layout.distance), self._filter(wanted.clause)
        return Question(vector, layout.dense, wanted.top_k, filter_, None, score)

    def _sharing(self, text: str, wanted: FlatWanted, layout: Layout) -> Talk[Question | None]:
        if layout.sparse is None:
            raise UnsupportedModeError(
                f"{self._store.where} has no sparse vectors; make a new collection with "
                "enable_hybrid=True, or open one by URL"
            )
        vector = yield from self._store.encoded(text)
        if not vector.indices:
            return None
        params = None
        scoped = layout.weighs_rarity and self._store.version.measures_rarity_in_scope
        if wanted.corpus is not None and scoped:
            corpus = models.IdfCorpusParams(corpus=as_filter(wanted.corpus))
            params = models.SearchParams(idf=corpus)
        filter_ = self._filter(wanted.clause)
        return Question(vector, layout.sparse, wanted.top_k, filter_, params, float, positive=True)

    def _filter(self, clause: Clause | None) -> models.Filter | None:
        if clause is None:
            return None
        self._store.version.check(clause)
        return as_filter(clause)
