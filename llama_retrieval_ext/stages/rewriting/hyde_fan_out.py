"""The query, and documents that would answer it, as queries."""

from dataclasses import dataclass

from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.algebra.rewrite import FanOut
from llama_retrieval_ext.stages.rewriting.hypothetical_documents import HypotheticalDocuments
from llama_retrieval_ext.stages.rewriting.query_variants import reworded


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HyDEFanOut(HypotheticalDocuments, FanOut):
    """Retrieves with each imagined answer too: ``HyDEFanOut(llm) >> retriever >> RRF()``.

    One document that is wrong costs less than in the mean of `HyDE`, at the price of a retrieval
    each; and keyword search sees the documents' words. When the LLM fails, is late, or says nothing
    usable, the query goes on alone and the answer is marked degraded. The result's details have
    ``hyde_queries`` and ``hyde_queries_count``.

    It takes the arguments of `HypotheticalDocuments`.

    Source:
        Gao et al., Precise Zero-Shot Dense Retrieval without Relevance Labels, ACL 2023,
        https://arxiv.org/abs/2212.10496; but where the paper averages embeddings, rankings are
        fused.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> HyDEFanOut(ScriptedLLM(["Staff have 25 days of annual leave."]))
        HyDEFanOut(ScriptedLLM, n=1)

    """

    def fan_out_plan(self, query: Query) -> Plan[list[Query]]:
        """The plan for the query and one more for each imagined answer."""
        if not query.query_str.strip():
            return [query]
        documents = yield from self.documents(query)
        asked = [query] if self.include_original or not documents else []
        return asked + [reworded(query, document) for document in documents]
