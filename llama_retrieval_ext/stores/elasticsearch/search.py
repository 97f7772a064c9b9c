"""Searches of a store, for the LlamaIndex class and for the backend alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from llama_index.core.schema import BaseNode
from pydantic_core import to_json

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.elasticsearch.client import answer
from llama_retrieval_ext.stores.elasticsearch.documents import asked_text, found_in, query_vector
from llama_retrieval_ext.stores.elasticsearch.errors import of_status
from llama_retrieval_ext.stores.elasticsearch.index import (
    ID,
    NODE,
    SEARCH_PARAMS,
    SIMILARITIES,
    TEXT,
    VECTOR,
    Index,
    Similarity,
)
from llama_retrieval_ext.stores.elasticsearch.requests import Json, Steps, lines_request, request
from llama_retrieval_ext.stores.encoding.node_json import node_from_text
from llama_retrieval_ext.stores.engine.backend import Candidate
from llama_retrieval_ext.stores.engine.old_searcher import Sought, fused_here
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch

# Hits that a server returns at once, and candidates that it looks at, unless set up otherwise.
WINDOW: Final = 10_000
# So many that match a filter are compared one by one, which takes a millisecond and misses none.
_FILTERED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What every kind of search is told besides what to look for.

    Attributes:
        top_k: How many to return, at least 1.
        filter: What each must match; None for everything.
        route: Where what it may see lies, if the index is spread by tenants.
        bare: Whether ids will do: a node takes the engine longer to read than to find.
    """

    top_k: int
    filter: Json | None = None
    route: str | None = None
    bare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """Nodes near to an embedding; None stands for zeros, which are at cosine 0 to all.

    Nodes that tie where the ranking is cut come in the engine's order, so that one more than wanted
    is asked for, and if it ties, many more.

    Attributes:
        wanted: How many, and which.
        vector: What to be near to.
        similarity: How embeddings are compared.
        least_candidates: How many each shard looks at, at least.
        size: How many to ask for.
        surely: Whether the engine is to look at all nodes where they are some thousands: its graph
            of neighbours loses some of many that are alike.
    """

    wanted: Wanted
    vector: list[float] | None
    similarity: Similarity
    least_candidates: int
    size: int
    surely: bool = False

    def body(self) -> Json:
        """The search."""
        filters = [] if self.wanted.filter is None else [self.wanted.filter]
        if self.vector is None:
            every = {"bool": {"filter": filters}}
            return {"query": every, "sort": [ID], **page(self.size, bare=self.wanted.bare)}
        if self.surely and not filters:
            filters = [{"exists": {"field": VECTOR}}]
        nearest = {
            "field": VECTOR,
            "query_vector": self.vector,
            "k": self.size,
            "num_candidates": self._candidates(bool(filters)),
            "filter": filters,
        }
        return {"knn": nearest, **page(self.size, bare=self.wanted.bare)}

    def _candidates(self, filtered: bool) -> int:  # noqa: FBT001 - private, and named at the call
        """How many nodes each shard looks at; all that match, where they are no more than these."""
        if self.surely:
            return WINDOW
        least = max(self.least_candidates, _FILTERED) if filtered else self.least_candidates
        return min(max(least, 2 * self.size), WINDOW)

    def again(self, hits: Sequence[Json]) -> Self | None:
        """What to ask instead; None where these hits decide the ranking."""
        cut = self.wanted.top_k
        if self.vector is None:
            return None
        if len(hits) < self.size:
            unsure = self.wanted.filter is None and not self.surely
            return replace(self, surely=True) if unsure else None
        if self.size == WINDOW or len(hits) <= cut or hits[cut - 1]["_score"] > hits[-1]["_score"]:
            return None
        return replace(self, size=min(4 * self.size, WINDOW), surely=True)

    def ranking(self, hits: Sequence[Json]) -> list[Candidate]:
        """Best first, equal scores by node id."""
        raw = self.similarity.raw
        found = [found_in(hit, 0.0 if self.vector is None else raw(hit["_score"])) for hit in hits]
        return _cut(found, self.wanted.top_k)


@dataclass(frozen=True, slots=True)
class Sharing:
    """Nodes that share terms with a text; the engine itself orders ties by node id."""

    wanted: Wanted
    text: str

    def body(self) -> Json:
        """The search."""
        match: Json = {"match": {TEXT: {"query": self.text}}}
        if self.wanted.filter is not None:
            match = {"bool": {"must": [match], "filter": [self.wanted.filter]}}
        size = min(self.wanted.top_k, WINDOW)
        order = [{"_score": "desc"}, {ID: "asc"}]
        return {"query": match, "sort": order, **page(size, bare=self.wanted.bare)}

    def again(self, hits: Sequence[Json]) -> None:
        """None: these decide the ranking."""

    def ranking(self, hits: Sequence[Json]) -> list[Candidate]:
        """Best first, equal scores by node id."""
        found = [found_in(hit, hit["sort"][0]) for hit in hits]
        return _cut(found, self.wanted.top_k)


@dataclass(frozen=True, slots=True)
class Added:
    """Both, each score times its boost, added up by the engine, which orders ties by node id.

    Every node that shares a term has a keyword score here, and of the others the nearest.

    Attributes:
        nearest: As many as are candidates, each with the engine's score: (1 + cosine) / 2.
        sharing: How many to return, and which.
        boosts: What their scores are multiplied by.
    """

    nearest: Nearest
    sharing: Sharing
    boosts: tuple[float, float]

    @property
    def wanted(self) -> Wanted:
        """How many, and which."""
        return self.sharing.wanted

    def body(self) -> Json:
        """The search."""
        near, match = self.nearest.body()["knn"], self.sharing.body()
        knn = {**near, "k": min(self.nearest.wanted.top_k, WINDOW), "boost": self.boosts[0]}
        match["query"] = {"bool": {"must": [match["query"]], "boost": self.boosts[1]}}
        return {"knn": knn, **match}

    def again(self, hits: Sequence[Json]) -> None:
        """None: these decide the ranking."""

    def ranking(self, hits: Sequence[Json]) -> list[Candidate]:
        """Best first, equal scores by node id."""
        return self.sharing.ranking(hits)


Question = Nearest | Sharing | Added


def check_window(top_k: int, hits: Sequence[Json]) -> None:
    """Refuse what would be cut short silently.

    Raises:
        ConfigurationError: More hits were wanted than a server returns at once, and there are more.
    """
    if top_k > WINDOW and len(hits) >= WINDOW:
        raise ConfigurationError(
            f"Elasticsearch returns at most {WINDOW} hits at once, top_k is {top_k}; to read all "
            "nodes call get_nodes()"
        )


def hits_in(told: Json) -> list[Json]:
    """The hits of an answer."""
    hits: list[Json] = told["hits"]["hits"]
    return hits


def page(size: int, *, bare: bool = False) -> Json:
    """How many hits, and what of them: their ids, or what their nodes are made of."""
    fields: Json = {"docvalue_fields": [ID], "stored_fields": "_none_"}
    what = fields if bare else {"_source": False, "stored_fields": [NODE]}
    return {"size": size, "track_total_hits": False, **what}


def _cut(found: list[Candidate], top_k: int) -> list[Candidate]:
    found.sort(key=lambda each: (-each.score, each.node_id))
    return found[:top_k]


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

    def dense(self, embedding: Sequence[float], wanted: Wanted) -> Steps[list[Candidate]]:
        """Nearest nodes to an embedding.

        Raises:
            ConfigurationError: A value of it is not finite.
            DimensionMismatchError: It has another dimension than the index.
        """
        if not (yield from self._index.known()):
            return []
        (ranking,) = yield from self._answers([self._nearest(embedding, wanted)])
        return ranking

    def keyword(self, text: str, wanted: Wanted) -> Steps[list[Candidate]]:
        """Nodes that share terms with a text, by BM25; each has a score above 0."""
        terms = asked_text(text, self._index.manifest)
        if not terms.strip() or not (yield from self._index.known()):
            return []
        (ranking,) = yield from self._answers([Sharing(wanted, terms)])
        return ranking

    def batch(self, asked: Sequence[tuple[Sought, Wanted]]) -> Steps[list[list[Candidate]]]:
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
    ) -> Steps[list[Candidate]]:
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

    def _answers(self, questions: Sequence[Question]) -> Steps[list[list[Candidate]]]:
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
