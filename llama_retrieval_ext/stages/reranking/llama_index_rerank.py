"""Guards LlamaIndex's rerankers by LLM against answers that name documents that there are not."""

from collections.abc import Callable
from typing import TypeAlias

from llama_index.core.postprocessor import LLMRerank, StructuredLLMRerank
from llama_index.core.postprocessor.types import BaseNodePostprocessor

# The numbers of the documents, from 1, and their relevances.
ParsedAnswer: TypeAlias = tuple[list[int], list[float] | None]


def strict(postprocessor: BaseNodePostprocessor) -> BaseNodePostprocessor:
    """The same postprocessor; of a reranker by LLM a copy that follows valid numbers alone.

    LlamaIndex takes document 0 of an answer for the last one of the batch, and fails on numbers
    that are further off. A number that is repeated counts once, with its first relevance.
    """
    if not isinstance(postprocessor, LLMRerank | StructuredLLMRerank):
        return postprocessor
    guarded = postprocessor.model_copy()
    parse = postprocessor._parse_choice_select_answer_fn  # noqa: SLF001 - it has no public name
    guarded._parse_choice_select_answer_fn = _in_range(parse)  # noqa: SLF001
    return guarded


def _in_range(parse: Callable[..., ParsedAnswer]) -> Callable[..., ParsedAnswer]:
    def parsed(answer: object, documents: int) -> ParsedAnswer:
        numbers, relevances = parse(answer, documents)
        known = relevances or [1.0] * len(numbers)
        kept: dict[int, float] = {}
        for number, relevance in zip(numbers, known, strict=False):
            if 1 <= int(number) <= documents:
                kept.setdefault(int(number), relevance)
        return list(kept), list(kept.values())

    return parsed
