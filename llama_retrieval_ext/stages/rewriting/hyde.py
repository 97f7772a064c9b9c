"""The query where documents that answer it would be."""

from dataclasses import dataclass, replace

from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.algebra.rewrite import Rewrite
from llama_retrieval_ext.stages.rewriting.hypothetical_documents import HypotheticalDocuments


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HyDE(HypotheticalDocuments, Rewrite):
    """Searches near the mean of the query and imagined answers: ``HyDE(llm) >> retriever``.

    Vector search takes the mean of the embeddings of the query and of ``n`` documents that a
    language model makes up. Keyword search goes on with the query's own words. A query that brings
    its own embedding keeps it, and the LLM is not asked. When the LLM fails, is late, or says
    nothing usable, the query goes on as it was and the answer is marked degraded. The result's
    details have ``hyde_queries`` and ``hyde_queries_count``.

    `HyDEFanOut` retrieves with each document and fuses the rankings instead.

    It takes the arguments of `HypotheticalDocuments`.

    Source:
        Gao et al., Precise Zero-Shot Dense Retrieval without Relevance Labels, ACL 2023,
        https://arxiv.org/abs/2212.10496, equation 8: the mean of ``n`` documents and the query.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> HyDE(ScriptedLLM(["Staff have 25 days of annual leave."]))
        HyDE(ScriptedLLM, n=1)

    """

    def rewrite_plan(self, query: Query) -> Plan[Query]:
        """The plan for a query that is embedded together with its imagined answers."""
        if query.embedding is not None or not query.query_str.strip():
            return query
        documents = yield from self.documents(query)
        if not documents:
            return query
        original = query.embedding_strs if self.include_original else []
        return replace(query, custom_embedding_strs=[*original, *documents])
