"""The questions that a question consists of."""

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

DECOMPOSE_PROMPT: Final = """\
Divide the question below into at most {n} simpler questions that can be looked up one by one, and \
that together answer it. Each must make sense on its own: name what it is about. If the question \
asks one thing only, repeat it.
Write one question per line and nothing else, in the language of the question.
每行只写一个问题，不写其他内容；使用与原问题相同的语言。

Question: {query}
"""  # noqa: RUF001 - Chinese punctuation


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Decompose(FanOut):
    r"""Asks the parts of a question one by one: ``Decompose(llm) >> retriever >> RRF()``.

    A question that asks one thing goes on as it is. When the LLM fails, is late, or says nothing
    usable, so does any other, and the answer is marked degraded. The result's details have
    ``generated_queries`` and ``queries_count``, which counts the original too.

    Args:
        llm: Any LlamaIndex LLM.
        n: How many parts at most, at least 1; each costs a retrieval.
        include_original: Whether the whole question is asked as well.
        prompt: With ``{query}`` and ``{n}``; other braces stay as they are.
        timeout_s: Seconds the LLM may take, within half of what is left of the query's time.

    Raises:
        ConfigurationError: An argument cannot work.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> Decompose(ScriptedLLM(["How long is sick leave?\nWho pays?"]))
        Decompose(ScriptedLLM, n=4)

    """

    llm: LLM
    _: KW_ONLY
    n: int = 4
    include_original: bool = True
    prompt: str = DECOMPOSE_PROMPT
    timeout_s: float = LLM_TIMEOUT_S
    _writer: LLMWriter = field(init=False)

    def __post_init__(self) -> None:
        check_number(self.n, of="n")
        check_prompt(self.prompt)
        object.__setattr__(self, "_writer", LLMWriter(self.llm, timeout_s=self.timeout_s))

    def fan_out(self, query: Query) -> Plan[list[Query]]:
        """The plan for the query and its parts."""
        text = query.query_str
        if not text.strip():
            return [query]
        written = yield from self._writer.written(
            "Decompose",
            filled(self.prompt, query=text, n=self.n),
            lambda answer: wordings(answer, query),
            scope=query.scope,
        )
        parts = [part for found in written for part in distinct(found, of=text)][: self.n]
        return fanned_out(query, parts, include_original=self.include_original)

    def __repr__(self) -> str:
        return f"Decompose({self._writer!r}, n={self.n})"
