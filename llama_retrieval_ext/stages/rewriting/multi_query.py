"""The query in other words."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from llama_index.core.llms import LLM

from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.algebra.rewrite import FanOut
from llama_retrieval_ext.stages.llm.llm_prompt import check_prompt, filled
from llama_retrieval_ext.stages.llm.llm_writer import LLM_TIMEOUT_S, LLMWriter
from llama_retrieval_ext.stages.rewriting.generated_queries import (
    check_number,
    fanned_out,
    wordings,
)
from llama_retrieval_ext.stages.rewriting.query_variants import distinct

MULTI_QUERY_PROMPT: Final = """\
A search engine is to find documents for the question below. Write {n} other queries that would \
find them: use synonyms and the words such documents use, and look at the question from several \
sides.
Write one query per line and nothing else, in the language of the question.
每行只写一个查询，不写其他内容；查询使用与问题相同的语言。

Question: {query}
"""  # noqa: RUF001 - Chinese punctuation


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MultiQuery(FanOut):
    r"""Asks in other words too: ``MultiQuery(llm) >> retriever >> RRF()``.

    Variants may come numbered, quoted, fenced, as JSON, between other lines. Those that only repeat
    the query or leave its language are dropped. When the LLM fails, is late, or writes none, the
    query goes on alone and the answer is marked degraded. The result's details have
    ``generated_queries`` and ``queries_count``, which counts the original too.

    Args:
        llm: Any LlamaIndex LLM.
        n: How many variants, at least 1; each costs a retrieval.
        include_original: Whether the query itself is asked as well.
        prompt: With ``{query}`` and ``{n}``; other braces stay as they are. LlamaIndex's
            ``{num_queries}`` is another name of ``{n}``.
        timeout_s: Seconds the LLM may take, within half of what is left of the query's time.

    Raises:
        ConfigurationError: An argument cannot work.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> MultiQuery(ScriptedLLM(["annual leave\ndays off"]), n=2)
        MultiQuery(ScriptedLLM, n=2)

    """

    llm: LLM
    _: KW_ONLY
    n: int = 3
    include_original: bool = True
    prompt: str = MULTI_QUERY_PROMPT
    timeout_s: float = LLM_TIMEOUT_S
    _writer: LLMWriter = field(init=False)

    def __post_init__(self) -> None:
        check_number(self.n, of="n")
        check_prompt(self.prompt)
        object.__setattr__(self, "_writer", LLMWriter(self.llm, timeout_s=self.timeout_s))

    def fan_out(self, query: Query) -> Plan[list[Query]]:
        """The plan for the query and its variants."""
        text = query.query_str
        if not text.strip():
            return [query]

        def read(answer: str) -> list[str]:
            return distinct(wordings(answer, query), of=text)[: self.n]

        prompt = filled(self.prompt, query=text, n=self.n, num_queries=self.n)
        written = yield from self._writer.written("MultiQuery", prompt, read, scope=query.scope)
        variants = [variant for variants in written for variant in variants]
        return fanned_out(query, variants, include_original=self.include_original)

    def __repr__(self) -> str:
        return f"MultiQuery({self._writer!r}, n={self.n})"
