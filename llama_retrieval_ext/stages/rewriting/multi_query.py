"""The query in other words."""

from dataclasses import KW_ONLY, dataclass
from typing import Final

from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.rewriting.generated_queries import wordings
from llama_retrieval_ext.stages.rewriting.query_variants import distinct
from llama_retrieval_ext.stages.rewriting.written_queries import WrittenQueries

MULTI_QUERY_PROMPT: Final = """\
A search engine is to find documents for the question below. Write {n} other queries that would \
find them: use synonyms and the words such documents use, and look at the question from several \
sides.
Write one query per line and nothing else, in the language of the question.
每行只写一个查询，不写其他内容；查询使用与问题相同的语言。

Question: {query}
"""  # noqa: RUF001 - Chinese punctuation


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MultiQuery(WrittenQueries):
    r"""Asks in other words too: ``MultiQuery(llm) >> retriever >> RRF()``.

    It takes the arguments of `WrittenQueries`; ``n`` is how many variants are asked for.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> MultiQuery(ScriptedLLM(["annual leave\ndays off"]), n=2)
        MultiQuery(ScriptedLLM, n=2)

    """

    _: KW_ONLY
    n: int = 3
    prompt: str = MULTI_QUERY_PROMPT

    def _usable(self, answer: str, query: Query) -> list[str]:
        """Those in other words than the query's."""
        return distinct(wordings(answer, query), of=query.query_str)
