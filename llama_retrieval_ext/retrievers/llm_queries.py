"""Retrievers that search with what an LLM writes: other wordings, hypothetical answers (HyDE)."""

from collections.abc import Mapping, Sequence

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.arguments import NamedEnum
from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import current_context, note_details
from llama_retrieval_ext.execution.legs import Ask, Leg, Rankings
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.llm.client import LLM_TIMEOUT_S
from llama_retrieval_ext.pipeline.branches import Branches
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.tree import name_of
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, as_hit
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rewrite.hyde import HYDE_PROMPT, HyDE, HyDEFanOut
from llama_retrieval_ext.stages.rewrite.multi_query import MULTI_QUERY_PROMPT, MultiQuery


class QueryVariantsRetriever(FusionRetriever):
    """``fan_out >> retriever >> RRF()`` with the hits of each wording in its result.

    The result's details have ``retrieval_details``, a list of ``query``, ``hits_count`` and
    ``hits`` in the order of the queries. It takes the arguments of `FusionRetriever` and has one
    leg.
    """

    def _note(self, asks: Mapping[str, Ask], rankings: Rankings) -> None:
        queries = [each.query for each in asks.values()]
        found = [rankings.get(name, []) for name in asks]
        note_retrievals(queries, found, source=self.legs[0].name)


def note_retrievals(
    queries: Sequence[Query], rankings: Sequence[Sequence[NodeWithScore]], *, source: str
) -> None:
    """Note the hits of each query in the result's details."""
    if current_context().trace is None:
        return
    note_details(
        retrieval_details=[
            {
                "query": query.query_str,
                "hits_count": len(ranking),
                "hits": [as_hit(hit, source=source).to_dict() for hit in ranking],
            }
            for query, ranking in zip(queries, rankings, strict=True)
        ]
    )


class MultiQueryRetriever(QueryVariantsRetriever):
    """``MultiQuery(llm) >> base_retriever >> RRF()``: one retriever, the query in several wordings.

    If the LLM fails, times out, or writes no query, the base retriever answers the original query,
    and the answer is marked degraded. The result's details have ``generated_queries``,
    ``queries_count`` (the original included) and ``retrieval_details`` with the hits of each query.

    Args:
        base_retriever: Ours or any other LlamaIndex retriever. Each query requests its default
            number of hits, or ``top_k`` of the call if that is larger.
        llm: Any LlamaIndex LLM.
        num_queries: Number of queries that the LLM writes, at least 1; each costs a retrieval.
        include_original: Whether to search for the original query too.
        rrf_k: Smoothing constant of the fusion, in ranks; see `RRF`.
        top_k: Number of hits if the query sets none; None for all that were found.
        prompt: Template with ``{query}`` and ``{n}``; other braces are kept.
        timeout_s: Time limit of the LLM in seconds, at most half of the remaining time of the
            query.
        name: Name in traces and ``Hit.source``.

    Raises:
        ConfigurationError: An argument is invalid.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> llm = ScriptedLLM(["1. days off per year"])
        >>> retriever = MultiQueryRetriever(FakeRetriever([("a", 0.9)]), llm, num_queries=1)
        >>> retriever.search("annual leave").details["generated_queries"]
        ['days off per year']

    """

    def __init__(  # noqa: PLR0913 - the names that applications use already
        self,
        base_retriever: BaseRetriever,
        llm: LLM,
        *,
        num_queries: int = 3,
        include_original: bool = True,
        rrf_k: float = 60.0,
        top_k: int | None = 10,
        prompt: str = MULTI_QUERY_PROMPT,
        timeout_s: float = LLM_TIMEOUT_S,
        name: str = "multi_query",
    ) -> None:
        queries = MultiQuery(
            llm,
            n=num_queries,
            include_original=include_original,
            prompt=prompt,
            timeout_s=timeout_s,
        )
        leg = Leg(name_of(base_retriever), base_retriever)
        super().__init__(Branches((leg,), (), queries), RRF(k=rrf_k), top_k=top_k, name=name)


class HyDEMode(NamedEnum):
    """Use of the hypothetical documents.

    Attributes:
        FUSED: Each is a separate query, and the rankings are fused, so a wrong one does little
            harm.
        MEAN: Their embeddings and the query's are averaged, as in the paper: one retrieval, with
            the scores of the base retriever.
    """

    FUSED = "fused"
    MEAN = "mean"


_RRF_K = 60.0


class HyDERetriever(Retriever):
    """``HyDEFanOut(llm) >> base_retriever >> RRF()``, or ``HyDE(llm) >> base_retriever``.

    If the LLM fails, times out, or returns nothing usable, the base retriever answers the original
    query, and the answer is marked degraded. The result's details have ``hyde_queries``,
    ``hyde_queries_count`` and ``retrieval_details`` with the hits of each query.

    Args:
        base_retriever: Ours or any other LlamaIndex retriever. Each query requests its default
            number of hits, or ``top_k`` of the call if that is larger.
        llm: Any LlamaIndex LLM.
        hyde_queries: Number of documents that the LLM generates, at least 1. Equal ones count once,
            so more than one needs a temperature above 0.
        include_original: Whether to search for the original query too.
        mode: How the documents are used.
        rrf_k: Smoothing constant of the fusion, in ranks; see `RRF`. Only for mode FUSED.
        top_k: Number of hits if the query sets none; None for all that were found.
        max_tokens: Passed to the LLM; None for its default.
        prompt: Template with ``{query}``; other braces are kept.
        timeout_s: Time limit of the LLM in seconds, at most half of the remaining time of the
            query.
        name: Name in traces, and in ``Hit.source`` if rankings are fused.

    Raises:
        ConfigurationError: An argument is invalid.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> llm = ScriptedLLM(["Staff have 25 days of annual leave."])
        >>> HyDERetriever(FakeRetriever([("a", 0.9)]), llm).search("annual leave?").details[
        ...     "hyde_queries"]
        ['Staff have 25 days of annual leave.']

    """

    def __init__(  # noqa: PLR0913 - the names that applications use already
        self,
        base_retriever: BaseRetriever,
        llm: LLM,
        *,
        hyde_queries: int = 1,
        include_original: bool = True,
        mode: HyDEMode = HyDEMode.FUSED,
        rrf_k: float = _RRF_K,
        top_k: int | None = 10,
        max_tokens: int | None = None,
        prompt: str = HYDE_PROMPT,
        timeout_s: float = LLM_TIMEOUT_S,
        name: str = "hyde",
    ) -> None:
        super().__init__(top_k=top_k, name=name)
        if mode is HyDEMode.MEAN and rrf_k != _RRF_K:
            raise ConfigurationError(
                f"rrf_k={rrf_k} has no effect where embeddings are averaged; leave it out, or pass "
                "mode=HyDEMode.FUSED"
            )
        self.base_retriever = base_retriever
        self.mode = of_type(mode, HyDEMode, "mode")
        stage = (HyDE if mode is HyDEMode.MEAN else HyDEFanOut)(
            llm,
            n=hyde_queries,
            include_original=include_original,
            prompt=prompt,
            max_tokens=max_tokens,
            timeout_s=timeout_s,
        )
        self._inner: Retriever
        if isinstance(stage, HyDE):
            self._inner = Pipeline(base_retriever, rewrites=[stage], name=name)
        else:
            legs = (Leg(name_of(base_retriever), base_retriever),)
            self._inner = QueryVariantsRetriever(Branches(legs, (), stage), RRF(k=rrf_k), name=name)

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """Base retriever."""
        return [self.base_retriever]

    @property
    def label(self) -> str:
        """Stages around the base retriever."""
        return self._inner.label

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Run the pipeline of rewrites, retriever and fusion."""
        hits = yield from self._inner.plan(query)  # no level of its own in traces
        if self.mode is HyDEMode.MEAN:
            note_retrievals([query], [hits], source=self.name)
        return hits
