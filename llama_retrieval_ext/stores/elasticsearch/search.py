"""Searches of a store, for the LlamaIndex class and for the backend alike."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from llama_index.core.schema import BaseNode
from pydantic_core import to_json

from llama_retrieval_ext.stores.backend import Found, Sought
from llama_retrieval_ext.stores.elasticsearch.failures import of_status
from llama_retrieval_ext.stores.elasticsearch.index import SEARCH_PARAMS, Index
from llama_retrieval_ext.stores.elasticsearch.keyword_terms import asked_text
from llama_retrieval_ext.stores.elasticsearch.mapping import ID, NODE
from llama_retrieval_ext.stores.elasticsearch.patience import answer
from llama_retrieval_ext.stores.elasticsearch.questions import (
    WINDOW,
    Added,
    Nearest,
    Question,
    Sharing,
    Wanted,
    check_window,
    hits_in,
    page,
)
from llama_retrieval_ext.stores.elasticsearch.request import Json, Steps, lines_request, request
from llama_retrieval_ext.stores.elasticsearch.similarity import SIMILARITIES
from llama_retrieval_ext.stores.elasticsearch.vectors import query_vector
from llama_retrieval_ext.stores.fused_here import fused_here
from llama_retrieval_ext.stores.native_fusion import FusedSearch
from llama_retrieval_ext.stores.nodes.stored_node import node_from_text

_OK = 200
# A shard scores by the rarity of terms on all shards; with one shard this is free. With a vector
# beside it that is always so, and must not be asked for.
_GLOBAL_STATISTICS = "dfs_query_then_fetch"


class Searcher:
    """Asks the engine. Rankings come best first, equal scores by node id; no index gives [].

    Args:
        index: Which is searched.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    def dense(self, embedding: Sequence[float], wanted: Wanted) -> Steps[list[Found]]:
        """Nearest nodes to an embedding.

        Raises:
            ConfigurationError: A value of it is not finite.
            DimensionMismatchError: It has another dimension than the index.
        """
        if not (yield from self._index.known()):
            return []
        (ranking,) = yield from self._answers([self._nearest(embedding, wanted)])
        return ranking

    def keyword(self, text: str, wanted: Wanted) -> Steps[list[Found]]:
        """Nodes that share terms with a text, by BM25; each has a score above 0."""
        terms = asked_text(text, self._index.manifest)
        if not terms.strip() or not (yield from self._index.known()):
            return []
        (ranking,) = yield from self._answers([Sharing(wanted, terms)])
        return ranking

    def batch(self, asked: Sequence[tuple[Sought, Wanted]]) -> Steps[list[list[Found]]]:
        """Any number of them in one request.

        Args:
            asked: An embedding to be near to, or a text to share terms with; and how many nodes,
                and which.

        Raises:
            ConfigurationError: A value of an embedding is not finite.
            DimensionMismatchError: An embedding has another dimension than the index.
        """
        if not (yield from self._index.known()):
            return [[] for _ in asked]
        questions = [self._question(each, wanted) for each, wanted in asked]
        some = [each for each in questions if each is not None]
        found = iter((yield from self._answers(some)) if some else [])
        return [[] if each is None else next(found) for each in questions]

    def _question(self, sought: Sought, wanted: Wanted) -> Question | None:
        if not isinstance(sought, str):
            return self._nearest(sought, wanted)
        terms = asked_text(sought, self._index.manifest)
        return Sharing(wanted, terms) if terms.strip() else None

    def nodes_of(self, node_ids: Sequence[str], wanted: Wanted) -> Steps[Mapping[str, BaseNode]]:
        """Nodes by the ids of hits that came without; what does not match any more is left out."""
        clauses = [{"terms": {ID: list(node_ids)}}]
        if wanted.filter is not None:
            clauses.append(wanted.filter)
        fields = {**page(len(node_ids)), "stored_fields": [NODE], "docvalue_fields": [ID]}
        body = {"query": {"bool": {"filter": clauses}}, **fields}
        params = {**SEARCH_PARAMS, **_where(wanted)}
        asked = request("POST", self._index.name, "_search", params=params, body=body)
        hits = yield from answer(asked, hits_in)
        return {hit["fields"][ID][0]: node_from_text(hit["fields"][NODE][0]) for hit in hits}

    def fused(
        self, embedding: Sequence[float], text: str, wanted: Wanted, how: FusedSearch
    ) -> Steps[list[Found]]:
        """The best of both as the engine adds them up.

        Raises:
            ConfigurationError: A value of the embedding is not finite.
            DimensionMismatchError: It has another dimension than the index.
        """
        if not (yield from self._index.known()):
            return []
        candidates = replace(wanted, top_k=how.candidates)
        nearest = self._nearest(embedding, candidates)
        terms = asked_text(text, self._index.manifest)
        if nearest.vector is None or not terms.strip():
            # Nothing is near to zeros, and nothing shares no term: there are not two to add.
            dense, keyword = yield from self.batch(
                [(embedding, candidates), (text, replace(wanted, top_k=WINDOW))]
            )
            return fused_here(dense, keyword, how, top_k=wanted.top_k)
        added = Added(nearest, Sharing(wanted, terms), how.proportions)
        (ranking,) = yield from self._answers([added])
        return ranking

    def _nearest(self, embedding: Sequence[float], wanted: Wanted) -> Nearest:
        manifest = self._index.manifest
        vector = query_vector(
            embedding,
            dimension=manifest.dimension or len(embedding),
            distance=manifest.distance,
            index=self._index.name,
        )
        return Nearest(
            wanted=wanted,
            vector=vector,
            similarity=SIMILARITIES[manifest.distance],
            least_candidates=self._index.params.num_candidates,
            size=min(wanted.top_k + 1, WINDOW),
            surely=self._index.is_small,
        )

    def _answers(self, questions: Sequence[Question]) -> Steps[list[list[Found]]]:
        """One ranking a question, all asked at once; again only where hits leave it open."""
        open_: dict[int, Question] = dict(enumerate(questions))
        pages: list[list[Json]] = [[] for _ in questions]
        while open_:
            told = yield from self._hits(list(open_.values()))
            asked, open_ = open_, {}
            for (place, question), hits in zip(asked.items(), told, strict=True):
                pages[place] = hits
                self._learn(question, hits)
                again = question.again(hits)
                if again is not None:
                    open_[place] = again
        for question, hits in zip(questions, pages, strict=True):
            check_window(question.wanted.top_k, hits)
        return [question.ranking(hits) for question, hits in zip(questions, pages, strict=True)]

    def _learn(self, question: Question, hits: Sequence[Json]) -> None:
        """Whether the next search had better ask for all of a few at once."""
        if isinstance(question, Nearest) and question.wanted.filter is None:
            self._index.is_small = len(hits) < question.size

    def _hits(self, asked: Sequence[Question]) -> Steps[list[list[Json]]]:
        name = self._index.name
        if len(asked) == 1:
            (question,) = asked
            params = {**SEARCH_PARAMS, **_how(question)}
            alone = request("POST", name, "_search", params=params, body=question.body())
            return [(yield from answer(alone, hits_in))]
        lines = []
        for question in asked:
            header = {"index": name, **SEARCH_PARAMS, **_how(question)}
            lines += [to_json(header), to_json(question.body())]
        together = lines_request("_msearch", lines=lines)
        return (
            yield from answer(
                together, lambda told: [_hits_of(part, name) for part in told["responses"]]
            )
        )


def _how(question: Question) -> Json:
    how = _where(question.wanted)
    if isinstance(question, Sharing):
        how["search_type"] = _GLOBAL_STATISTICS
    return how


def _where(wanted: Wanted) -> Json:
    return {} if wanted.route is None else {"routing": wanted.route}


def _hits_of(part: Json, index: str) -> list[Json]:
    status = part.get("status", _OK)
    if status != _OK:
        raise of_status(status, part, index)
    return hits_in(part)
