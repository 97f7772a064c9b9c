"""Selector by a language model."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.llm.functions import AnyLLM
from llama_retrieval_ext.llm.model import SEARCH_TIMEOUT_S, LanguageModel, filled
from llama_retrieval_ext.llm.parsing import cleaned, is_cut_off, texts_in_json
from llama_retrieval_ext.parameters import Count, Seconds
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.routing.selectors import Choice, Selection, Selector

_PROMPT = """\
Several sources can be searched. Which of them answer the question best?

{choices}

Question: {query}

Answer with the numbers of at most {most} of them, best first, separated by commas, and nothing \
else. If none fits, answer: none
"""


# Not part of a word, a negative number or a fraction. Chinese may adjoin it without a space.
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.-])\d{1,3}(?![A-Za-z0-9_]|\.\d)")


_NONE = re.compile(r"\W*(none|no source|neither)\b|\W*(都不|没有|无)", re.IGNORECASE)


# A list of numbers and nothing else.
_LIST = re.compile(r"[\d\s,;.、，；\[\]()]+")  # noqa: RUF001 - Chinese


class _SelectorAnswer(NamedTuple):
    """Route numbers that the model chose; may be empty."""

    numbers: list[int]


class LLMSelector(Selector):
    """Selector of the routes whose numbers a language model returns.

    Parsing is tolerant; repeated numbers count once. The selector abstains if the model answers
    that no route fits. It also abstains if the answer has no number in range and is no list of
    names, if a number or name of a list is no route, or if the model fails or times out; then the
    answer of the router is marked degraded.

    Args:
        llm: Any LlamaIndex LLM, or a function from prompt to text.
        max_routes: Maximum number of routes, at least 1.
        timeout_s: Time limit in seconds, at most half of the remaining time of the query.

    Raises:
        ConfigurationError: The LLM is missing, or a number is out of range.
    """

    def __init__(
        self, llm: AnyLLM, *, max_routes: Count = 1, timeout_s: Seconds = SEARCH_TIMEOUT_S
    ) -> None:
        self.max_routes = max_routes
        # The router and the cascade have already limited the time.
        self._model = LanguageModel(llm, timeout_s, share=1.0)

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """Return the routes that the model chose, in its order."""
        listed = "\n".join(
            f"{number}. {choice.name}: {choice.description}"
            for number, choice in enumerate(choices, start=1)
        )
        prompt = filled(_PROMPT, choices=listed, most=self.max_routes, query=query.query_str)
        answers: list[_SelectorAnswer | None] = yield from self._model.answers(
            repr(self),
            prompt,
            lambda answer: _read(answer, [choice.name for choice in choices]),
            scope=query.scope,
        )
        numbers = answers[0].numbers[: self.max_routes] if answers and answers[0] else []
        return [
            Selection(choices[number - 1].name, reason="the LLM chose it") for number in numbers
        ]


def _read(answer: str, names: Sequence[str]) -> _SelectorAnswer | None:
    """Return the distinct routes that an answer chooses, by number; None if none is usable."""
    text = cleaned(answer)
    if _NONE.match(text):
        return _SelectorAnswer([])
    if is_cut_off(text):
        return None
    named = [int(number) for number in _NUMBER.findall(text)]
    numbers = [number for number in dict.fromkeys(named) if 1 <= number <= len(names)]
    if not numbers:  # some models answer with names
        places = {name.casefold(): number for number, name in enumerate(names, start=1)}
        parts = texts_in_json(text)
        if parts is None:
            parts = re.split("[,，、\n]", text)  # noqa: RUF001 - Chinese
        said_names = dict.fromkeys(part.strip(" .。*\"'`").casefold() for part in parts)
        numbers = [places.get(name, 0) for name in said_names if name]
    elif _LIST.fullmatch(text) and len(numbers) < len(set(named)):
        return None
    if not all(numbers):  # one of the names is no route
        return None
    return _SelectorAnswer(numbers) if numbers else None
