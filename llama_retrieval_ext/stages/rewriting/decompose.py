"""The questions that a question consists of."""

from dataclasses import KW_ONLY, dataclass
from typing import Final

from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.rewriting.generated_queries import wordings
from llama_retrieval_ext.stages.rewriting.written_queries import WrittenQueries

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
    r"""Asks the parts of a question one by one: ``Decompose(llm) >> retriever >> RRF()``.

    A question that asks one thing goes on as it is.

    It takes the arguments of `WrittenQueries`; ``n`` is how many parts there are at most.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> Decompose(ScriptedLLM(["How long is sick leave?\nWho pays?"]))
        Decompose(ScriptedLLM, n=4)

    """

    _: KW_ONLY
    n: int = 4
    prompt: str = DECOMPOSE_PROMPT

    def _usable(self, answer: str, query: Query) -> list[str]:
        """Any: a question that asks one thing is to be repeated."""
        return wordings(answer, query)
