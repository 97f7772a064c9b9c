"""The backend of Elasticsearch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.stages.fusions.normalisation import Normalisation
from llama_retrieval_ext.stages.fusions.weighted_sum import WeightedSum
from llama_retrieval_ext.stores.backend import (
    Capabilities,
    Choice,
    Chosen,
    Found,
    ScoredId,
    ScoreRange,
    Search,
)
from llama_retrieval_ext.stores.elasticsearch.conditions import compiled
from llama_retrieval_ext.stores.elasticsearch.documents import route_of
from llama_retrieval_ext.stores.elasticsearch.questions import WINDOW, Wanted
from llama_retrieval_ext.stores.elasticsearch.request import Steps
from llama_retrieval_ext.stores.elasticsearch.search import Searcher
from llama_retrieval_ext.stores.elasticsearch.similarity import SIMILARITIES
from llama_retrieval_ext.stores.elasticsearch.store import ElasticsearchVectorStore
from llama_retrieval_ext.stores.engine_backend import EngineBackend
from llama_retrieval_ext.stores.native_fusion import NativeFusion
from llama_retrieval_ext.stores.searcher import Answer

# Scores are added up, and cosines come as (1 + cosine) / 2. Other similarities bend the scale.
_FUSIONS: Final = (
    NativeFusion(
        kind=WeightedSum,
        scales=(Normalisation.COSINE, Normalisation.NONE),
        whole_keyword_leg=True,
    ),
)


class ElasticsearchBackend(EngineBackend[ElasticsearchVectorStore, Wanted]):
    """Asks an `ElasticsearchVectorStore` for nearest nodes, for keywords, or for both at once.

    The rarity of a term is measured over the whole index, not over what a scope can see: a tenant's
    keyword scores tell how common its terms are among all tenants, though never a text or an id.
    Where that is too much, give each tenant an index.

    Where it fuses, the keyword score of every node counts, not only of as many as are candidates.

    Args:
        store: The store; whoever opened it closes it.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.
    """

    engine = "elasticsearch"

    @property
    def capabilities(self) -> Capabilities:
        """Everything but MMR."""
        return Capabilities(
            dense=SIMILARITIES[self.store.distance].range,
            keyword=ScoreRange("bm25", 0.0, None),
            one_round_trip=True,
            ids_first=True,
            most_hits=WINDOW,
            fusions=_FUSIONS if self.store.distance == "cosine" else (),
            mmr=self._has_mmr,
            real_async=True,
        )

    def best_of_both(
        self, embedding: Sequence[float], text: str, search: Search, choose: Choice
    ) -> Call[Chosen]:
        """What is chosen of both: their ids come in one request, the nodes in a second.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition; nothing was sent.
        """
        wanted, searcher = self._wanted(search), self._searcher
        bare = replace(wanted, bare=True)

        def steps() -> Steps[Chosen]:
            near, sharing = yield from searcher.batch([(embedding, bare), (text, bare)])
            top = choose(_scored(near), _scored(sharing))
            if not top:
                return [], {}
            return top, (yield from searcher.nodes_of([each.node_id for each in top], wanted))

        return self._call(steps)

    @property
    def _searcher(self) -> Searcher:
        return self.store.searcher

    def _wanted(self, search: Search) -> Wanted:
        condition, scope = search.condition, search.scope
        tenant_id = None if scope is None else scope.tenant_id
        return Wanted(
            search.top_k,
            None if condition is None else compiled(condition),
            route_of(tenant_id) if self.store.routing and tenant_id is not None else None,
        )

    def _call(self, ask: Callable[[], Answer]) -> Call[Answer]:
        transport = self.store.transport
        return Call(lambda: transport.run(ask()), lambda: transport.arun(ask()))


def _scored(found: Sequence[Found]) -> list[ScoredId]:
    return [(each.node_id, each.score) for each in found]
