"""Searches of an index that LlamaIndex's ``ElasticsearchStore`` made, with raw scores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node

from llama_retrieval_ext.errors import UnsupportedFilterError, UnsupportedModeError
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.stores.backend import Found, Search
from llama_retrieval_ext.stores.elasticsearch.conditions import EVERYTHING
from llama_retrieval_ext.stores.elasticsearch.foreign_conditions import widened
from llama_retrieval_ext.stores.elasticsearch.foreign_layout import ForeignLayout
from llama_retrieval_ext.stores.elasticsearch.index import SEARCH_PARAMS
from llama_retrieval_ext.stores.elasticsearch.patience import answer
from llama_retrieval_ext.stores.elasticsearch.questions import WINDOW, hits_in
from llama_retrieval_ext.stores.elasticsearch.request import Json, Steps, request
from llama_retrieval_ext.stores.elasticsearch.similarity import of_engine
from llama_retrieval_ext.stores.elasticsearch.vectors import query_vector

_CANDIDATES: Final = 1_000
_MOST_WORDS: Final = 1_024


@dataclass(frozen=True)
class ForeignSearcher:
    """Asks such an index.

    Attributes:
        index: Its name.
        text_field: Where texts are.
        vector_field: Where embeddings are.
    """

    index: str
    text_field: str
    vector_field: str

    def dense(self, embedding: Sequence[float], search: Search) -> Steps[list[Found]]:
        """Nearest nodes to an embedding.

        Raises:
            DimensionMismatchError: It has another dimension than the index.
            UnsupportedModeError: The index has no embeddings.
        """
        layout = yield from self._layout()
        if layout is None:
            return []
        if layout.similarity is None:
            raise UnsupportedModeError(f"the index {self.index!r} holds no embeddings")
        similarity = of_engine(layout.similarity)
        vector = query_vector(
            embedding,
            dimension=layout.dimension or len(embedding),
            distance=similarity.checked_as,
            index=self.index,
        )
        if vector is None:  # zeros, which are near to nothing
            return []
        found = yield from self._verified(
            lambda size: {
                "knn": {
                    "field": self.vector_field,
                    "query_vector": vector,
                    "k": size,
                    "num_candidates": min(max(_CANDIDATES, 2 * size), WINDOW),
                    "filter": [_query(search.condition, layout)],
                }
            },
            search,
        )
        return [Found(node, similarity.raw(score)) for node, score in found]

    def keyword(self, text: str, search: Search) -> Steps[list[Found]]:
        """Nodes that share words with a text, as the analyser of the field cuts them."""
        layout = yield from self._layout()
        words = " ".join(text.split()[:_MOST_WORDS])
        if layout is None or not words:
            return []
        query = {
            "bool": {
                "must": [{"match": {self.text_field: {"query": words}}}],
                "filter": [_query(search.condition, layout)],
            }
        }
        found = yield from self._verified(lambda _: {"query": query}, search)
        return [Found(node, score) for node, score in found]

    def _verified(
        self, body: Callable[[int], Json], search: Search
    ) -> Steps[list[tuple[BaseNode, float]]]:
        """The best nodes that really satisfy the condition, equal scores by node id."""
        size = min(search.top_k + 1, WINDOW)
        while True:
            page = {"size": size, "track_total_hits": False, "_source": self._fields()}
            asked = request(
                "POST", self.index, "_search", params=SEARCH_PARAMS, body={**body(size), **page}
            )
            hits = yield from answer(asked, hits_in)
            found = [(self._node(hit), float(hit["_score"])) for hit in hits]
            kept = [each for each in found if matches(search.condition, each[0].metadata)]
            enough = len(kept) > search.top_k and kept[search.top_k - 1][1] > found[-1][1]
            if enough or len(hits) < size:
                break
            if size == WINDOW:
                if len(kept) < search.top_k:
                    raise UnsupportedFilterError(_too_many(self.index), "")
                break
            size = min(4 * size, WINDOW)
        kept.sort(key=lambda each: (-each[1], each[0].node_id))
        return kept[: search.top_k]

    def _layout(self) -> Steps[ForeignLayout | None]:
        """What the index looks like now; None where it is not there. Fields come with documents."""
        told = yield request("GET", self.index, "_mapping", params={"ignore_unavailable": "true"})
        return ForeignLayout.of_index(told, vector_field=self.vector_field) if told else None

    def _fields(self) -> list[str]:
        return [self.text_field, "metadata"]

    def _node(self, hit: Json) -> BaseNode:
        source: Json = hit["_source"]
        return metadata_dict_to_node(source["metadata"], text=source.get(self.text_field))


def _query(condition: Condition | None, layout: ForeignLayout) -> Json:
    return EVERYTHING if condition is None else widened(condition, layout)


def _too_many(index: str) -> str:
    return (
        f"the filter cannot be decided by the fields of index {index!r}, nor among its "
        f"best {WINDOW} nodes; copy them into a store opened by URL, where the engine decides"
    )
