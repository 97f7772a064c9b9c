"""Retrievers that search with what an LLM writes: other wordings, hypothetical answers (HyDE)."""

from collections.abc import Mapping

from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext.execution.context import current_context, note_details
from llama_retrieval_ext.execution.legs import Ask, Leg, Rankings
from llama_retrieval_ext.hits import as_hit
from llama_retrieval_ext.llm.functions import AnyLLM
from llama_retrieval_ext.llm.model import SEARCH_TIMEOUT_S
from llama_retrieval_ext.pipeline.branches import Branches
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever
from llama_retrieval_ext.pipeline.stages import FanOut
from llama_retrieval_ext.pipeline.tree import name_of
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rewrite.hyde import HYDE_PROMPT, HyDEFanOut
from llama_retrieval_ext.stages.rewrite.multi_query import MULTI_QUERY_PROMPT, MultiQuery


class QueryVariantsRetriever(FusionRetriever):
    """``fan_out >> base_retriever >> RRF()`` with the hits of each query in its result.

    The result's details have ``retrieval_details``, a list of ``query``, ``hits_count`` and
    ``hits`` in the order of the queries.
    """

    def __init__(
        self,
        fan_out: FanOut,
        base_retriever: BaseRetriever,
        *,
        rrf_k: float,
        top_k: int | None,
        name: str,
    ) -> None:
        self.base_retriever = base_retriever
        legs = (Leg(name_of(base_retriever), base_retriever),)
        super().__init__(Branches(legs, (), fan_out), RRF(k=rrf_k), top_k=top_k, name=name)

    def _note(self, asks: Mapping[str, Ask], rankings: Rankings) -> None:
        if current_context().trace is None:
            return
        source = self.legs[0].name
        by_name = {name: rankings.get(name, []) for name in asks}
        note_details(
            retrieval_details=[
                {
                    "query": asks[name].query.query_str,
                    "hits_count": len(ranking),
                    "hits": [as_hit(hit, source=source).to_dict() for hit in ranking],
                }
                for name, ranking in by_name.items()
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
        llm: Any LlamaIndex LLM, or a function from prompt to text, sync or async.
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
        llm: AnyLLM,
        *,
        num_queries: int = 3,
        include_original: bool = True,
        rrf_k: float = 60.0,
        top_k: int | None = 10,
        prompt: str = MULTI_QUERY_PROMPT,
        timeout_s: float = SEARCH_TIMEOUT_S,
        name: str = "multi_query",
    ) -> None:
        queries = MultiQuery(
            llm,
            n=num_queries,
            include_original=include_original,
            prompt=prompt,
            timeout_s=timeout_s,
        )
        super().__init__(queries, base_retriever, rrf_k=rrf_k, top_k=top_k, name=name)


class HyDERetriever(QueryVariantsRetriever):
    """``HyDEFanOut(llm) >> base_retriever >> RRF()``: one retriever, hypothetical answers.

    For the mean of their embeddings, as in the paper, write ``HyDE(llm) >> base_retriever``.

    If the LLM fails, times out, or returns nothing usable, the base retriever answers the original
    query, and the answer is marked degraded. The result's details have ``hyde_queries``,
    ``hyde_queries_count`` and ``retrieval_details`` with the hits of each query.

    Args:
        base_retriever: Ours or any other LlamaIndex retriever. Each query requests its default
            number of hits, or ``top_k`` of the call if that is larger.
        llm: Any LlamaIndex LLM, or a function from prompt to text, sync or async.
        hyde_queries: Number of documents that the LLM generates, at least 1. Equal ones count once,
            so more than one needs a temperature above 0.
        include_original: Whether to search for the original query too.
        rrf_k: Smoothing constant of the fusion, in ranks; see `RRF`.
        top_k: Number of hits if the query sets none; None for all that were found.
        max_tokens: Passed to the LLM; None for its default.
        prompt: Template with ``{query}``; other braces are kept.
        timeout_s: Time limit of the LLM in seconds, at most half of the remaining time of the
            query.
        name: Name in traces and ``Hit.source``.

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
        llm: AnyLLM,
        *,
        hyde_queries: int = 1,
        include_original: bool = True,
        rrf_k: float = 60.0,
        top_k: int | None = 10,
        max_tokens: int | None = None,
        prompt: str = HYDE_PROMPT,
        timeout_s: float = SEARCH_TIMEOUT_S,
        name: str = "hyde",
    ) -> None:
        documents = HyDEFanOut(
            llm,
            n=hyde_queries,
            include_original=include_original,
            prompt=prompt,
            max_tokens=max_tokens,
            timeout_s=timeout_s,
        )
        super().__init__(documents, base_retriever, rrf_k=rrf_k, top_k=top_k, name=name)
