"""Fan-outs to queries by a language model: rewordings, sub-questions, broader questions."""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from llama_index.core.llms import LLM

from llama_retrieval_ext.checks import check_count
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.llm.client import LLM_TIMEOUT_S, LLMWriter, check_prompt, filled
from llama_retrieval_ext.pipeline.query_variants import distinct
from llama_retrieval_ext.pipeline.stages import FanOut
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.rewrite.query_parsing import fanned_out, wordings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WrittenQueries(FanOut, ABC):
    """Base of fan-outs to queries that a language model writes.

    The list may be numbered, quoted, fenced, JSON, or between other lines. Queries that repeat the
    original or are in another language are dropped. If the LLM fails, times out or gives no usable
    answer, only the original is searched and the answer is marked degraded. The result's details
    have ``generated_queries`` and ``queries_count``, which includes the original.

    Args:
        llm: Any LlamaIndex LLM.
        n: Maximum number of queries, at least 1; each costs a retrieval.
        include_original: Whether to search the original query as well.
        prompt: Template with ``{query}`` and ``{n}``; other braces are kept. LlamaIndex's
            ``{num_queries}`` is another name of ``{n}``.
        timeout_s: Time limit of the LLM in seconds, within half of the query's remaining time.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    llm: LLM
    _: KW_ONLY
    n: int
    include_original: bool = True
    prompt: str
    timeout_s: float = LLM_TIMEOUT_S
    _writer: LLMWriter = field(init=False)

    def __post_init__(self) -> None:
        check_count(self.n, "n")
        check_prompt(self.prompt)
        object.__setattr__(self, "_writer", LLMWriter(self.llm, timeout_s=self.timeout_s))

    def fan_out_plan(self, query: Query) -> Plan[list[Query]]:
        """Return the plan for the query and those that the model writes."""
        text = query.query_str
        if not text.strip():
            return [query]
        written = yield from self._writer.written(
            type(self).__name__,
            filled(self.prompt, query=text, n=self.n, num_queries=self.n),
            lambda answer: self._usable(answer, query),
            scope=query.scope,
        )
        texts = [each for wordings in written for each in distinct(wordings, of=text)][: self.n]
        return fanned_out(query, texts, include_original=self.include_original)

    @abstractmethod
    def _usable(self, answer: str, query: Query) -> list[str]:
        """Return the queries in an answer; an empty list counts as a failure."""


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
    r"""Fan-out to rewordings of the query: ``MultiQuery(llm) >> retriever >> RRF()``.

    It takes the arguments of `WrittenQueries`; ``n`` is the number of variants.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> MultiQuery(ScriptedLLM(["annual leave\ndays off"]), n=2)
        MultiQuery(ScriptedLLM(...), n=2)

    """

    _: KW_ONLY
    n: int = 3
    prompt: str = MULTI_QUERY_PROMPT

    def _usable(self, answer: str, query: Query) -> list[str]:
        return distinct(wordings(answer, query), of=query.query_str)


DECOMPOSE_PROMPT: Final = """\
Divide the question below into at most {n} simpler questions that can be looked up one by one, and \
that together answer it. Each must make sense on its own: name what it is about. If the question \
asks one thing only, repeat it.
Write one question per line and nothing else, in the language of the question.
每行只写一个问题，不写其他内容；使用与原问题相同的语言。

Question: {query}
"""  # noqa: RUF001 - Chinese punctuation


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Decompose(WrittenQueries):
    r"""Fan-out to the parts of a question: ``Decompose(llm) >> retriever >> RRF()``.

    A question with one part stays unchanged.

    It takes the arguments of `WrittenQueries`; ``n`` is the maximum number of parts.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> Decompose(ScriptedLLM(["How long is sick leave?\nWho pays?"]))
        Decompose(ScriptedLLM(...))

    """

    _: KW_ONLY
    n: int = 4
    prompt: str = DECOMPOSE_PROMPT

    def _usable(self, answer: str, query: Query) -> list[str]:
        # Keeps the query itself: for a question with one part the model repeats it.
        return wordings(answer, query)


STEP_BACK_PROMPT: Final = """\
Take a step back from the question below: write the one more general question about the concept, \
rule or principle behind it, whose answer helps to answer it.
Write only that question, on one line, in the language of the question. If it is general already, \
repeat it.
只写一行，只写那个更一般的问题；使用与问题相同的语言。

Question: {query}
"""  # noqa: RUF001 - Chinese punctuation


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StepBack(WrittenQueries):
    """Fan-out to a broader question: ``StepBack(llm) >> retriever >> RRF()``.

    It takes the arguments of `WrittenQueries` except ``n`` and ``include_original``.

    Source:
        Zheng et al., Take a Step Back, ICLR 2024, https://arxiv.org/abs/2310.06117. The
        paper reads the passages of both questions; this class fuses their rankings.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> StepBack(ScriptedLLM(["How is leave regulated?"]))
        StepBack(ScriptedLLM(...))

    """

    _: KW_ONLY
    n: int = field(default=1, init=False)
    include_original: bool = field(default=True, init=False)
    prompt: str = STEP_BACK_PROMPT

    def _usable(self, answer: str, query: Query) -> list[str]:
        return wordings(answer, query)[:1]
