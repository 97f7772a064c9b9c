"""Searches as the engine takes them, and rankings of what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.elasticsearch.documents import found_in
from llama_retrieval_ext.stores.elasticsearch.mapping import ID, NODE, TEXT, VECTOR
from llama_retrieval_ext.stores.elasticsearch.request import Json
from llama_retrieval_ext.stores.elasticsearch.similarity import Similarity

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

    def ranking(self, hits: Sequence[Json]) -> list[Found]:
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

    def ranking(self, hits: Sequence[Json]) -> list[Found]:
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

    def ranking(self, hits: Sequence[Json]) -> list[Found]:
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


def _cut(found: list[Found], top_k: int) -> list[Found]:
    found.sort(key=lambda each: (-each.score, each.node_id))
    return found[:top_k]
