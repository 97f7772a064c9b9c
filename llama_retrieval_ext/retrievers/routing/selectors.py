"""Selectors: interface, by embeddings, by an LLM, cascade, and adapter of LlamaIndex's."""

import dis
import re
from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import unwrap
from itertools import chain
from threading import Lock
from typing import NamedTuple

import numpy as np
from llama_index.core.base.base_selector import BaseSelector, SelectorResult
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.selectors import (
    EmbeddingSingleSelector,
    LLMSingleSelector,
    PydanticSingleSelector,
)
from llama_index.core.tools import ToolMetadata
from numpy.typing import NDArray

from llama_retrieval_ext.arguments import RecordsArguments, handle_expression
from llama_retrieval_ext.checks import CheckedArguments, check_count, is_number, of_type
from llama_retrieval_ext.errors import ConfigurationError, ExecutionError
from llama_retrieval_ext.execution.context import call, current_context
from llama_retrieval_ext.execution.legs import or_degraded
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.retrieval import embed_text
from llama_retrieval_ext.llm.client import LLM_TIMEOUT_S, LLMWriter, filled, has_async
from llama_retrieval_ext.llm.parsing import cleaned
from llama_retrieval_ext.pipeline.stages import items_of, plan_of, undefined
from llama_retrieval_ext.query import Query

# Share of the query's time; the rest is for the routes.
_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Choice:
    """Name and description of a route, as passed to selectors.

    Attributes:
        name: Name of the route, unique among the routes.
        description: Contents of the route, for embedding and LLM selectors.
        examples: Questions for the route, for embedding selectors.
    """

    name: str
    description: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """Route that a selector picked.

    Attributes:
        name: Name of the route.
        confidence: Confidence of the selector, in ``(0, 1]``; can weigh the route in the fusion.
        reason: Reason, in words.
    """

    name: str
    confidence: float = 1.0
    reason: str = ""


class Selector(CheckedArguments, RecordsArguments, ABC):
    """Base class of selectors, which pick routes for a query.

    A subclass defines `select`, a plain function of the query and the routes. A subclass that calls
    something slow, such as a model, defines `select_plan` instead, a generator of calls.

    Examples:
        >>> class Short(Selector):
        ...     def select(self, query, choices):
        ...         return [Selection("faq")] if len(query.query_str) < 20 else []

    """

    def check(self, choices: Sequence[Choice]) -> None:
        """Raise if the selector cannot pick among these routes; called once per router.

        Raises:
            ConfigurationError: The selector does not fit these routes.
        """

    def select(
        self,
        query: Query,  # noqa: ARG002 - subclasses use it
        choices: Sequence[Choice],  # noqa: ARG002 - subclasses use it
    ) -> Sequence[Selection]:
        """Return the routes to take, best first; empty to abstain.

        Args:
            query: The query.
            choices: The available routes.
        """
        raise undefined(self, Selector, "select(self, query, choices)")

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """Return the plan for the routes to take; by default one call of `select`."""
        answer = yield from call(Call(lambda: self.select(query, choices)))
        return _selections(answer, f"{type(self).__name__}.select")


def selected(
    selector: Selector, query: Query, choices: Sequence[Choice], *, share: float = _SHARE
) -> Plan[list[Selection]]:
    """Return the plan for a checked selection, limited to a share of the remaining time."""
    function = f"{type(selector).__name__}.select_plan"
    plan = plan_of(selector.select_plan(query, choices), function)
    left_s = current_context().remaining_s()
    limit_s = None if left_s is None else round(share * left_s, 3)
    outcomes: list[Outcome[list[Selection]]] = yield Together([Task(repr(selector), plan, limit_s)])
    return _selections(outcomes[0].result(), function)


def _selections(answer: object, function: str) -> list[Selection]:
    return items_of(answer, Selection, function, expected="Selection(name)")


class EmbeddingSelector(Selector):
    """Selector of the routes whose descriptions or examples are nearest to the query.

    These are embedded once, in one batch; the nearest text of a route counts. It abstains if no
    route reaches ``min_similarity``.

    Args:
        embed_model: Model for queries and descriptions.
        margin: Routes whose cosine is at most this far below the best are taken too; 0 takes only
            the nearest.
        min_similarity: Cosine below which a route is not taken, in ``[-1, 1]``.

    Raises:
        ConfigurationError: ``margin`` is negative, or ``min_similarity`` is outside ``[-1, 1]``.
    """

    def __init__(
        self, embed_model: BaseEmbedding, *, margin: float = 0.0, min_similarity: float = 0.0
    ) -> None:
        numbers = is_number(margin) and is_number(min_similarity)
        if not numbers or margin < 0 or not -1 <= min_similarity <= 1:
            raise ConfigurationError(
                "margin must be 0 or more and min_similarity between -1 and 1, "
                f"got {margin!r} and {min_similarity!r}"
            )
        self.embed_model = of_type(embed_model, BaseEmbedding, "embed_model")
        self.margin = margin
        self.min_similarity = min_similarity
        self._known: dict[str, NDArray[np.float64]] = {}
        self._lock = Lock()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=Lock())

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """Return the nearest routes; confidence is the cosine scaled to ``(0, 1]``."""
        if not query.query_str.strip():
            return []
        vectors = yield from self._vectors(choices)
        # Embed the text: an embedding in the query is from the routes' model.
        embedding = yield from embed_text(query.query_str, self.embed_model)
        query_vector = _unit(np.asarray(embedding, dtype=np.float64))
        cosines = [float(np.clip(texts @ query_vector, -1.0, 1.0).max()) for texts in vectors]
        if not query_vector.any() or not np.isfinite(cosines).all():
            return []  # the model has no vector for any word of the query
        least = max(self.min_similarity, max(cosines) - self.margin)
        order = sorted(range(len(choices)), key=lambda i: (-cosines[i], choices[i].name))
        near = [i for i in order if cosines[i] >= least]
        return [
            Selection(choices[i].name, max((1 + cosines[i]) / 2, 1e-9), f"{cosines[i]:.2f}")
            for i in (near if self.margin > 0 else near[:1])
        ]

    def _vectors(self, choices: Sequence[Choice]) -> Plan[list[NDArray[np.float64]]]:
        """Return the vectors of the texts of each route."""
        model = self.embed_model
        texts = [(choice.description, *choice.examples) for choice in choices]
        new = [text for text in dict.fromkeys(chain(*texts)) if text not in self._known]
        if new:
            vectors: list[list[float]] = yield Call(
                lambda: model.get_text_embedding_batch(new),
                lambda: model.aget_text_embedding_batch(new),
            )
            with self._lock:
                for text, vector in zip(new, vectors, strict=True):
                    self._known[text] = _unit(np.asarray(vector, dtype=np.float64))
        return [np.stack([self._known[text] for text in each]) for each in texts]


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector


class CascadeSelector(Selector):
    """Selector that uses the first of several selectors that is sure enough.

    A selector that fails or times out counts as abstaining, and the answer is marked degraded. If
    the query has a time limit, each selector gets an equal part of the remaining selection time. If
    all abstain, so does the cascade, and the router uses its fallback.

    Args:
        selectors: Ours or LlamaIndex's, in the order of trial, for instance rules, embedding, LLM.
        min_confidence: Confidence from which the next selector is not called, in [0, 1]. If none
            reaches it, the surest counts; 0 for the first that does not abstain.

    Raises:
        ConfigurationError: The list is empty, an item is not a selector, or ``min_confidence`` is
            out of range.
    """

    def __init__(self, *selectors: Selector | BaseSelector, min_confidence: float = 0.0) -> None:
        if not selectors:
            raise ConfigurationError("a cascade needs at least one selector")
        if not is_number(min_confidence) or not 0 <= min_confidence <= 1:
            raise ConfigurationError(f"min_confidence must be in [0, 1], got {min_confidence!r}")
        self.min_confidence = min_confidence
        self.selectors = tuple(as_selector(each, "a selector") for each in selectors)

    def check(self, choices: Sequence[Choice]) -> None:
        """Raise if one of the selectors cannot pick among these routes."""
        for selector in self.selectors:
            selector.check(choices)

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """Return the plan for the first selection that is sure enough, else the surest."""
        names, best = {choice.name for choice in choices}, list[Selection]()
        for number, selector in enumerate(self.selectors):
            share = 1 / (len(self.selectors) - number)
            plan = selected(selector, query, choices, share=share)
            answer = yield from or_degraded(repr(selector), plan, [])
            known = [each for each in answer if each.name in names]
            if known and (not best or known[0].confidence > best[0].confidence):
                best = known
            if best and best[0].confidence >= self.min_confidence:
                break
        return best


_SINGLE = (LLMSingleSelector, PydanticSingleSelector, EmbeddingSingleSelector)


class LlamaIndexSelector(Selector):
    """Adapter of a LlamaIndex selector that checks its answer.

    LlamaIndex reads an answer of 0 as the last route, does not check the range, and lets a single
    selector pick several.
    """

    def __init__(self, selector: BaseSelector) -> None:
        self.selector = selector

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """Return the plan for the picks of the selector."""
        tools = [ToolMetadata(name=each.name, description=each.description) for each in choices]
        result: SelectorResult = yield self._call(tools, query)
        picks: dict[int, Selection] = {}
        for picked in result.selections:
            if not 0 <= picked.index < len(choices):
                raise ExecutionError(f"{self!r} picked route {picked.index + 1} of {len(choices)}")
            selection = Selection(choices[picked.index].name, reason=picked.reason)
            picks.setdefault(picked.index, selection)
        return list(picks.values())[: self._most]

    def _call(self, tools: Sequence[ToolMetadata], query: Query) -> Call[SelectorResult]:
        return Call(
            lambda: self.selector.select(tools, query),
            None if _blocks(self.selector) else lambda: self.selector.aselect(tools, query),
        )

    @property
    def _most(self) -> int | None:
        """Maximum number of picks; None for no limit."""
        if isinstance(self.selector, _SINGLE):
            return 1
        most = getattr(self.selector, "_max_outputs", None)  # of LlamaIndex's multi-selectors
        return most if isinstance(most, int) else None

    def __repr__(self) -> str:
        return handle_expression(self.selector)  # without this adapter around it


def as_selector(selector: Selector | BaseSelector, what: str) -> Selector:
    """Return the selector; wrap one of LlamaIndex's."""
    if isinstance(selector, BaseSelector):
        return LlamaIndexSelector(selector)
    return of_type(selector, Selector, what, instead="pass one of ours or of LlamaIndex")


def _blocks(selector: BaseSelector) -> bool:
    """Return whether the async method of a selector, or of its model, blocks the event loop."""
    # LlamaIndex's own selectors store their model there.
    llm, model = getattr(selector, "_llm", None), getattr(selector, "_embed_model", None)
    methods: list[Callable[..., object]] = [type(selector)._aselect]  # noqa: SLF001 - there is no public way to see it
    if isinstance(model, BaseEmbedding):
        methods += [type(model)._aget_query_embedding, type(model)._aget_text_embedding]  # noqa: SLF001
    return (isinstance(llm, LLM) and not has_async(llm)) or not all(map(_awaits, methods))


def _awaits(method: Callable[..., object]) -> bool:
    """Return whether an async method awaits anything; many only call the blocking one."""
    code = getattr(unwrap(method), "__code__", None)
    return code is None or any(
        each.opname == "GET_AWAITABLE" for each in dis.get_instructions(code)
    )


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


class _Answer(NamedTuple):
    """Route numbers that the model chose; may be empty."""

    numbers: list[int]


class LLMSelector(Selector):
    """Selector of the routes whose numbers a language model returns.

    Parsing is tolerant, but numbers out of range and repeated numbers are ignored. The selector
    abstains if the model answers that no route fits. It also abstains if the answer has no number
    in range, or the model fails or times out; then the answer of the router is marked degraded.

    Args:
        llm: Any LlamaIndex LLM.
        max_routes: Maximum number of routes, at least 1.
        timeout_s: Time limit in seconds, at most half of the remaining time of the query.

    Raises:
        ConfigurationError: The LLM is missing, or a number is out of range.
    """

    def __init__(self, llm: LLM, *, max_routes: int = 1, timeout_s: float = LLM_TIMEOUT_S) -> None:
        self.max_routes = check_count(max_routes, "max_routes")
        # The router and the cascade have already limited the time.
        self._writer = LLMWriter(llm, timeout_s, share=1.0)

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """Return the routes that the model chose, in its order."""
        listed = "\n".join(
            f"{number}. {each.name}: {each.description}"
            for number, each in enumerate(choices, start=1)
        )
        prompt = filled(_PROMPT, choices=listed, most=self.max_routes, query=query.query_str)
        answers: list[_Answer | None] = yield from self._writer.written(
            repr(self), prompt, lambda said: _read(said, len(choices)), scope=query.scope
        )
        numbers = answers[0].numbers[: self.max_routes] if answers and answers[0] else []
        return [
            Selection(choices[number - 1].name, reason="the LLM chose it") for number in numbers
        ]


def _read(said: str, highest: int) -> _Answer | None:
    """Return the distinct route numbers of an answer, in order; None if none is usable."""
    text = cleaned(said)
    if _NONE.match(text):
        return _Answer([])
    named = (int(number) for number in _NUMBER.findall(text))
    numbers = [number for number in dict.fromkeys(named) if 1 <= number <= highest]
    return _Answer(numbers) if numbers else None
