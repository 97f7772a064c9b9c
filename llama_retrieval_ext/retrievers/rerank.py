"""Retriever with a reranker."""

from collections.abc import Sequence

from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import step
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.execution.retrieval import hits_of
from llama_retrieval_ext.parameters import Count
from llama_retrieval_ext.pipeline.postprocessor import Postprocessed
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.tree import name_of
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.stages.rerank.models import AnyReranker, RerankChain, as_reranker


class RerankRetriever(Retriever):
    """Retriever that reranks the hits of another: ``retriever >> reranker >> Top(k)``.

    If the reranker fails or times out, the order of the retriever is kept and the answer is marked
    degraded. For several rerankers with fallback, pass a `RerankChain`. To fail if the reranker
    fails, write ``retriever >> Postprocessed(reranker)``.

    Args:
        retriever: Source of the hits; any LlamaIndex retriever.
        reranker: A stage such as `RuleRerank` or `MMR`, any LlamaIndex postprocessor, a model of
            the package ``rerankers``, or any object with ``rerank(query, nodes)``, blocking or
            async. To declare the scale of scores, pass ``Postprocessed(reranker, score_kind=...)``.
        top_k: Number of hits if the query sets none; None for all that the reranker returns.
        fetch_k: Number of hits to request from the retriever, at least the number returned; None
            for its default, or that of the query if larger. Foreign retrievers always use their
            own.
        timeout_s: Time limit of the reranker in seconds; None for that of the query.
        name: Name in traces.

    Raises:
        ConfigurationError: A number is out of range; ``reranker`` is not a reranker, or returns
            fewer hits than ``top_k``.

    Examples:
        >>> from llama_retrieval_ext.stages.rerank.rules import RuleRerank
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> source = FakeRetriever([("a", 0.9, "sick leave"), ("b", 0.8, "annual leave")])
        >>> reranked = RerankRetriever(source, RuleRerank(), top_k=1)
        >>> [hit.node_id for hit in reranked.retrieve("annual leave")]
        ['b']

    """

    def __init__(
        self,
        retriever: BaseRetriever,
        reranker: AnyReranker,
        top_k: int | None = 10,
        *,
        fetch_k: Count | None = None,
        timeout_s: float | None = None,
        name: str = "rerank",
    ) -> None:
        super().__init__(top_k=top_k, name=name)
        self.retriever = retriever
        self.reranker = as_reranker(reranker)
        self.fetch_k = fetch_k
        _check_room(self.reranker, top_k)
        self._stage = (
            self.reranker
            if isinstance(self.reranker, RerankChain) and timeout_s is None
            else RerankChain(self.reranker, timeout_s=timeout_s)
        )

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """Retriever whose hits are reranked."""
        return [self.retriever]

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Retrieve deep enough, then rerank."""
        depth = self.fetch_k and max(self.fetch_k, query.top_k or 0)
        child = self._for_children(query)
        name = name_of(self.retriever)
        search = hits_of(self.retriever, child, top_k=depth, source=name)
        hits: list[Hit] = yield from step(name, search, reports=True)
        refined = yield from step(self.reranker, self._stage.refine_plan(query, hits))
        return refined[: query.top_k]


def _check_room(reranker: object, top_k: int | None) -> None:
    if not isinstance(reranker, Postprocessed) or top_k is None:
        return
    top_n = getattr(reranker.postprocessor, "top_n", None)  # name in LlamaIndex's rerankers
    if isinstance(top_n, int) and top_n < top_k:
        name = type(reranker.postprocessor).__name__
        raise ConfigurationError(
            f"{name} is set to return top_n={top_n} hits, fewer than top_k={top_k}; "
            f"write {name}(..., top_n={top_k})"
        )
