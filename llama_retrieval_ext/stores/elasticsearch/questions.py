"""Searches as the engine takes them, and rankings of what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.elasticsearch.documents import node_of
from llama_retrieval_ext.stores.elasticsearch.mapping import ID, NODE, TEXT, VECTOR
from llama_retrieval_ext.stores.elasticsearch.request import Json
from llama_retrieval_ext.stores.elasticsearch.similarity import Similarity

# Hits that a server returns at once, and candidates that it looks at, unless set up otherwise.
WINDOW: Final = 10_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What every kind of search is told besides what to look for.

    Attributes:
        top_k: How many to return, at least 1.
        filter: What each must match; None for everything.
        route: Where what it may see lies, if the index is spread by tenants.
    """

    top_k: int
    filter: Json | None = None
    route: str | None = None


@dataclass(frozen=True)
class Nearest:
    """Nodes near to an embedding; None stands for zeros, which are at cosine 0 to all.

    Nodes that tie where the ranking is cut come in the engine's order, so that one more than wanted
    is asked for, and if it ties, many more.
    """

    wanted: Wanted
    vector: list[float] | None
    similarity: Similarity
    least_candidates: int

    @property
    def first(self) -> int:
        """How many to ask for to begin with."""
        return min(self.wanted.top_k + 1, WINDOW)

    def body(self, size: int) -> Json:
        """The search for so many hits."""
        filters = [] if self.wanted.filter is None else [self.wanted.filter]
        if self.vector is None:
            return {"query": {"bool": {"filter": filters}}, "sort": [ID], **_page(size)}
        nearest = {
            "field": VECTOR,
            "query_vector": self.vector,
            "k": size,
            "num_candidates": min(max(self.least_candidates, 2 * size), WINDOW),
            "filter": filters,
        }
        return {"knn": nearest, **_page(size)}

    def next(self, hits: Sequence[Json], size: int) -> int | None:
        """How many to ask for instead; None where these decide the ranking."""
        cut = self.wanted.top_k
        if self.vector is None or len(hits) < size or size == WINDOW or len(hits) <= cut:
            return None
        tied = hits[cut - 1]["_score"] == hits[-1]["_score"]
        return min(4 * size, WINDOW) if tied else None

    def ranking(self, hits: Sequence[Json]) -> list[Found]:
        """Best first, equal scores by node id."""
        raw = self.similarity.raw
        found = [
            Found(node_of(hit["_source"]), 0.0 if self.vector is None else raw(hit["_score"]))
            for hit in hits
        ]
        return _cut(found, self.wanted.top_k)


@dataclass(frozen=True)
class Sharing:
    """Nodes that share terms with a text; the engine itself orders ties by node id."""

    wanted: Wanted
    text: str

    @property
    def first(self) -> int:
        """How many to ask for."""
        return min(self.wanted.top_k, WINDOW)

    def body(self, size: int) -> Json:
        """The search for so many hits."""
        match: Json = {"match": {TEXT: {"query": self.text}}}
        if self.wanted.filter is not None:
            match = {"bool": {"must": [match], "filter": [self.wanted.filter]}}
        return {"query": match, "sort": [{"_score": "desc"}, {ID: "asc"}], **_page(size)}

    def next(self, hits: Sequence[Json], size: int) -> int | None:  # noqa: ARG002 - Nearest's
        """None: these decide the ranking."""
        return None

    def ranking(self, hits: Sequence[Json]) -> list[Found]:
        """Best first, equal scores by node id."""
        return _cut(
            [Found(node_of(hit["_source"]), hit["sort"][0]) for hit in hits], self.wanted.top_k
        )


Question = Nearest | Sharing


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


def _page(size: int) -> Json:
    return {"size": size, "_source": [NODE], "track_total_hits": False}


def _cut(found: list[Found], top_k: int) -> list[Found]:
    found.sort(key=lambda each: (-each.score, each.node.node_id))
    return found[:top_k]
