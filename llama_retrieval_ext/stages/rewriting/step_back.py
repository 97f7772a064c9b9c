"""The more general question behind a query."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from llama_index.core.llms import LLM

from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.algebra.rewrite import FanOut
from llama_retrieval_ext.stages.llm.llm_prompt import check_prompt, filled
from llama_retrieval_ext.stages.llm.llm_writer import LLM_TIMEOUT_S, LLMWriter
from llama_retrieval_ext.stages.rewriting.generated_queries import fanned_out, wordings
from llama_retrieval_ext.stages.rewriting.query_variants import distinct

STEP_BACK_PROMPT: Final = """\
Take a step back from the question below: write the one more general question about the concept, \
rule or principle behind it, whose answer helps to answer it.
Write only that question, on one line, in the language of the question. If it is general already, \
repeat it.
只写一行，只写那个更一般的问题；使用与问题相同的语言。

Question: {query}
"""  # noqa: RUF001 - Chinese punctuation


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StepBack(FanOut):
    """Asks the question behind the question as well: ``StepBack(llm) >> retriever >> RRF()``.

    When the LLM fails, is late, or says nothing usable, the query goes on alone and the answer is
    marked degraded. The result's details have ``generated_queries`` and ``queries_count``.

    Args:
        llm: Any LlamaIndex LLM.
        prompt: With ``{query}``; other braces stay as they are.
        timeout_s: Seconds the LLM may take, within half of what is left of the query's time.

    Raises:
        ConfigurationError: An argument cannot work.

    Source:
        Zheng et al., Take a Step Back, ICLR 2024, https://arxiv.org/abs/2310.06117. There the
        passages of both questions are read; here their rankings are fused.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> StepBack(ScriptedLLM(["How is leave regulated?"]))
        StepBack(ScriptedLLM)

    """

    llm: LLM
    _: KW_ONLY
    prompt: str = STEP_BACK_PROMPT
    timeout_s: float = LLM_TIMEOUT_S
    _writer: LLMWriter = field(init=False)

    def __post_init__(self) -> None:
        check_prompt(self.prompt)
        object.__setattr__(self, "_writer", LLMWriter(self.llm, timeout_s=self.timeout_s))

    def fan_out_plan(self, query: Query) -> Plan[list[Query]]:
        """The plan for the query and the more general one."""
        text = query.query_str
        if not text.strip():
            return [query]
        written = yield from self._writer.written(
            "StepBack",
            filled(self.prompt, query=text),
            lambda answer: wordings(answer, query)[:1],
            scope=query.scope,
        )
        return fanned_out(query, [each for found in written for each in distinct(found, of=text)])

    def __repr__(self) -> str:
        return f"StepBack({self._writer!r})"
