"""Pseudo-relevance feedback: rewrites of a query by its own first hits."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import MetadataMode

from llama_retrieval_ext.checks import check_count
from llama_retrieval_ext.errors import ExecutionError
from llama_retrieval_ext.execution.context import note_details
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.execution.retrieval import check_retriever, embed, hits_of
from llama_retrieval_ext.formulas.feedback import relevance_model, rocchio
from llama_retrieval_ext.pipeline.stages import Rewrite
from llama_retrieval_ext.query import Query, reworded
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.stages.hit_embeddings import origin_model, stored_embeddings
from llama_retrieval_ext.text.normalization import CJK
from llama_retrieval_ext.text.tokenizer import Tokenizer

# Words, and pairs of adjacent characters in CJK runs, as in the tokenizer.
_WORD: Final = re.compile(rf"(?=([{CJK}]{{2}}))|((?:(?![{CJK}])\w)+)")
# Engines weight a query term by its count: the most probable term is repeated this many times.
_MOST_REPEATED: Final = 4
# A word that is not a stop word in any language.
_FIRST: Final = "zyx"


@dataclass(frozen=True, slots=True, repr=False)
class Feedback(Rewrite):
    """Base of rewrites that use the hits of a first search.

    Text found by the first search becomes part of the second query: bind a scope to the whole
    pipeline or to the query, so that it applies to both searches.
    """

    retriever: BaseRetriever
    _: KW_ONLY
    hits: int = 10

    def __post_init__(self) -> None:
        check_retriever(self.retriever, "the retriever of feedback")
        check_count(self.hits, "hits")

    def _first(self, query: Query) -> Plan[list[Hit]]:
        hits = yield from hits_of(self.retriever, query, top_k=self.hits)
        return hits[: self.hits]


@dataclass(frozen=True, slots=True, repr=False)
class RM3(Feedback):
    """Adds the words of the first hits to a query: ``RM3(bm25) >> bm25``, for keyword search.

    Words are repeated by their probability, up to four times, because engines count the terms of a
    query. Off by default: it lowers quality on our test collections, where few texts answer a
    question (figures in the README of this package). Use it where many texts answer a question. The
    result's details have ``feedback_terms``.

    Args:
        retriever: Finds the first hits; usually the retriever that follows.
        hits: Number of first hits treated as relevant, at least 1.
        terms: Number of terms to add, at least 1.
        original: The share of the query's own words, from 0 to 1.
        tokenizer: Splits text into terms. Pass the store's own if it is not the default.

    Raises:
        ConfigurationError: An argument is out of range.

    Source:
        `llama_retrieval_ext.formulas.feedback`.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> first = FakeRetriever([("a", 0.9, "Annual leave: vacation days, vacation requests.")])
        >>> second = FakeRetriever()
        >>> (RM3(first, terms=2) >> second).retrieve("leave")
        []
        >>> second.calls[0].query_str
        'leave leave leave leave vacation vacation vacation Annual'

    """

    _: KW_ONLY
    terms: int = 10
    original: float = 0.5
    tokenizer: Tokenizer = field(default_factory=Tokenizer)

    def __post_init__(self) -> None:
        Feedback.__post_init__(self)
        relevance_model({"": 1}, [], [], terms=self.terms, original=self.original)  # checks them

    def rewrite_plan(self, query: Query) -> Plan[Query]:
        """Return the plan for the query with the words of its first hits."""
        hits = yield from self._first(query)
        own, spelling = self._terms(query.query_str)
        if not hits or not own:
            return query
        documents: list[Mapping[str, int]] = []
        for hit in hits:
            counts, spelled = self._terms(hit.node.get_content(metadata_mode=MetadataMode.NONE))
            documents.append(counts)
            spelling = {**spelled, **spelling}
        scores = [hit.score or 0.0 for hit in hits]
        model = relevance_model(own, documents, scores, terms=self.terms, original=self.original)
        note_details(feedback_terms=[term for term in model if term not in own])
        return reworded(query, " ".join(_repeated(model, spelling)))

    def _terms(self, text: str) -> tuple[Counter[str], dict[str, str]]:
        """Return the count of each term in a text, and its first spelling there."""
        counts: Counter[str] = Counter()
        spelling: dict[str, str] = {}
        for word in (pair or other for pair, other in _WORD.findall(text)):
            # The tokenizer keeps the stop words of a query of stop words only: put a word first.
            term = " ".join(self.tokenizer.query_tokens(f"{_FIRST} {word}")[1:])
            if term:
                counts[term] += 1
                spelling.setdefault(term, word)
        return counts, spelling


def _repeated(model: Mapping[str, float], spelling: Mapping[str, str]) -> list[str]:
    """Return the words of a model, each repeated by its probability."""
    most = max(model.values())
    return [
        spelling[term]
        for term, share in model.items()
        for _ in range(max(1, round(_MOST_REPEATED * share / most)))
    ]


@dataclass(frozen=True, slots=True, repr=False)
class Rocchio(Feedback):
    """Moves the embedding of a query towards its first hits: ``Rocchio(dense) >> dense``.

    The embeddings of the hits come from the store that they were found in. Off by default: it
    lowers quality on our test collections, as `RM3` does. If embeddings are not available, the
    query stays unchanged and the answer is marked degraded.

    Args:
        retriever: Finds the first hits; usually the retriever that follows.
        hits: Number of first hits treated as relevant, at least 1.
        alpha: Weight of the query, at least 0.
        beta: Weight of the mean of the hits, at least 0.

    Raises:
        ConfigurationError: An argument is out of range. During a query: the hits come from stores
            with embeddings of different models.

    Source:
        `llama_retrieval_ext.formulas.feedback`.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> Rocchio(FakeRetriever(), beta=0.5)
        Rocchio(FakeRetriever(...), beta=0.5)

    """

    _: KW_ONLY
    alpha: float = 1.0
    beta: float = 0.75

    def __post_init__(self) -> None:
        Feedback.__post_init__(self)
        rocchio([0.0], [], alpha=self.alpha, beta=self.beta)  # checks them

    def rewrite_plan(self, query: Query) -> Plan[Query]:
        """Return the plan for the query with the moved embedding."""
        hits = yield from self._first(query)
        if not hits:
            return query
        model = origin_model(hits)
        known = yield from stored_embeddings(hits, None, model)
        if not known:
            raise _no_embeddings("of its first hits")
        embedding = query.embedding
        if embedding is None:
            if model is None:
                raise _no_embeddings("of the query")
            embedding = yield from embed(query, model)
        vectors = [*known.values()]
        return replace(
            query, embedding=rocchio(embedding, vectors, alpha=self.alpha, beta=self.beta)
        )


def _no_embeddings(whose: str) -> ExecutionError:
    return ExecutionError(
        f"Rocchio has no embedding {whose}; give it a retriever over a store of embeddings that "
        "knows its model, as those of a knowledge base do"
    )
