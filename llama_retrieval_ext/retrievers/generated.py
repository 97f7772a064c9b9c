"""`GeneratedRetriever`: the rows of an LLM-written statement, as sentences."""

from typing import Final

from llama_index.core.schema import TextNode

from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.filters import matches, parse_filters
from llama_retrieval_ext.graph.text_to_cypher import TextToCypher
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, ordered

NAME: Final = "generated"
# Rows of a generated statement have no relevance score.
_SCORE: Final = 0.5


class GeneratedRetriever(Retriever):
    """Retriever over the rows of a statement that an LLM writes, as sentences."""

    def __init__(self, text_to_cypher: TextToCypher) -> None:
        super().__init__(top_k=None, name=NAME)
        self.text_to_cypher = text_to_cypher

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Let the language model write a query, and run it."""
        answer = yield from self.text_to_cypher.plan_answer(query.query_str, scope=query.scope)
        if answer is None:
            return []
        metadata: dict[str, object] = {"kind": NAME, "statement": answer.statement}
        condition = None if query.filters is None else parse_filters(query.filters)
        if not matches(condition, metadata):
            return []
        nodes = [TextNode(text=sentence, metadata=metadata) for sentence in answer.sentences()]
        for node in nodes:
            node.id_ = f"{NAME}/{node.hash[:16]}"
            node.excluded_embed_metadata_keys = node.excluded_llm_metadata_keys = [*metadata]
        return ordered([Hit(node=node, score=_SCORE, source=self.name) for node in nodes])
