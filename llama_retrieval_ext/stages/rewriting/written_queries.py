"""Queries that a language model writes beside the one that is asked."""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field

from llama_index.core.llms import LLM

from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.algebra.rewrite import FanOut
from llama_retrieval_ext.stages.llm.llm_prompt import check_prompt, filled
from llama_retrieval_ext.stages.llm.llm_writer import LLM_TIMEOUT_S, LLMWriter
from llama_retrieval_ext.stages.rewriting.generated_queries import check_number, fanned_out
from llama_retrieval_ext.stages.rewriting.query_variants import distinct


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WrittenQueries(FanOut, ABC):
    """Has a language model write a list of queries, and asks them.

    They may come numbered, quoted, fenced, as JSON, between other lines. Those that only repeat the
    query or leave its language are dropped. When the LLM fails, is late, or says nothing usable,
    the query goes on alone and the answer is marked degraded. The result's details have
    ``generated_queries`` and ``queries_count``, which counts the original too.

    Args:
        llm: Any LlamaIndex LLM.
        n: How many at most, at least 1; each costs a retrieval.
        include_original: Whether the query itself is asked as well.
        prompt: With ``{query}`` and ``{n}``; other braces stay as they are. LlamaIndex's
            ``{num_queries}`` is another name of ``{n}``.
        timeout_s: Seconds the LLM may take, within half of what is left of the query's time.

    Raises:
        ConfigurationError: An argument cannot work.
    """

    llm: LLM
    _: KW_ONLY
    n: int
    include_original: bool = True
    prompt: str
    timeout_s: float = LLM_TIMEOUT_S
    _writer: LLMWriter = field(init=False)

    def __post_init__(self) -> None:
        check_number(self.n, of="n")
        check_prompt(self.prompt)
        object.__setattr__(self, "_writer", LLMWriter(self.llm, timeout_s=self.timeout_s))

    def fan_out_plan(self, query: Query) -> Plan[list[Query]]:
        """The plan for the query and what the model makes of it."""
        text = query.query_str
        if not text.strip():
            return [query]
        written = yield from self._writer.written(
            type(self).__name__,
            filled(self.prompt, query=text, n=self.n, num_queries=self.n),
            lambda answer: self._usable(answer, query),
            scope=query.scope,
        )
        texts = [each for found in written for each in distinct(found, of=text)][: self.n]
        return fanned_out(query, texts, include_original=self.include_original)

    @abstractmethod
    def _usable(self, answer: str, query: Query) -> list[str]:
        """The queries in an answer; none for one that counts as a failure."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._writer!r}, n={self.n})"
