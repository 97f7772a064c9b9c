"""Selectors: interface, by embeddings, by rules, cascade, and adapters of other selectors."""

import re
from abc import ABC
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Annotated, Any, Protocol, TypeAlias

from llama_index.core.base.base_selector import BaseSelector, SelectorResult
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.selectors import (
    EmbeddingSingleSelector,
    LLMSingleSelector,
    PydanticSingleSelector,
)
from llama_index.core.tools import ToolMetadata

from llama_retrieval_ext.arguments import handle_expression
from llama_retrieval_ext.checks import Part
from llama_retrieval_ext.errors import ConfigurationError, ExecutionError
from llama_retrieval_ext.execution.context import call, current_context
from llama_retrieval_ext.execution.drivers import awaits, blocking_or_awaited, either_way
from llama_retrieval_ext.execution.legs import or_degraded
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.retrieval import embed_text, embeds_async
from llama_retrieval_ext.formulas.cosine import Vector, cosines, matrix
from llama_retrieval_ext.llm.model import has_async
from llama_retrieval_ext.parameters import Portion, Range, Share
from llama_retrieval_ext.pipeline.stages import items_of, plan_of, undefined
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.hit_embeddings import embed_texts
from llama_retrieval_ext.text.normalization import RANGES, dominant_script

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
        confidence: Confidence of the selector, in ``(0, 1]``; see `CascadeSelector`.
        reason: Reason, in words.
    """

    name: str
    confidence: float = 1.0
    reason: str = ""


Picks: TypeAlias = Selection | str | int | Sequence[Selection | str | int]


class Selects(Protocol):
    """Any other object with a selector's function, blocking or async."""

    def select(
        self, query: Query, choices: Sequence[Choice], /
    ) -> Picks | Coroutine[Any, Any, Picks]:
        """Return the routes to take, as `Selector.select` does."""
        ...


class Selector(Part, ABC):
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
    ) -> Picks:
        """Return the routes to take, best first: names, indices from 0, or `Selection`s.

        A single route needs no list; an empty list abstains.

        Args:
            query: The query.
            choices: The available routes.
        """
        raise undefined(self, Selector, "select(self, query, choices)")

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """Return the plan for the routes to take; by default one call of `select`."""
        answer = yield from call(Call(lambda: self.select(query, choices)))
        return _selections(answer, choices, f"{type(self).__name__}.select")


AnySelector: TypeAlias = Selector | BaseSelector | Selects


def selected(
    selector: Selector, query: Query, choices: Sequence[Choice], *, share: float = _SHARE
) -> Plan[list[Selection]]:
    """Return the plan for a checked selection, limited to a share of the remaining time."""
    function = f"{type(selector).__name__}.select_plan"
    plan = plan_of(selector.select_plan(query, choices), function)
    left_s = current_context().remaining_s()
    limit_s = None if left_s is None else round(share * left_s, 3)
    outcomes: list[Outcome[list[Selection]]] = yield Together([Task(repr(selector), plan, limit_s)])
    return _selections(outcomes[0].result(), choices, function)


def _selections(answer: object, choices: Sequence[Choice], function: str) -> list[Selection]:
    picks = [answer] if isinstance(answer, Selection | str | int) else answer
    items = items_of(picks, object, function, expected="names, indices or Selections")
    return [_selection(item, choices, function) for item in items]


def _selection(pick: object, choices: Sequence[Choice], function: str) -> Selection:
    if isinstance(pick, Selection):
        return pick
    if isinstance(pick, str):
        return Selection(pick)
    if isinstance(pick, bool) or not isinstance(pick, int):
        raise ConfigurationError(
            f"{function} must return names, indices or Selections of routes, got {pick!r}"
        )
    if not 0 <= pick < len(choices):
        raise ExecutionError(f"{function} picked route {pick}; there are 0 to {len(choices) - 1}")
    return Selection(choices[pick].name)


Cosine: TypeAlias = Annotated[float, Range(least=-1, most=1)]


class EmbeddingSelector(Selector):
    """Selector of the route whose description or example is nearest to the query.

    These are embedded once, in one batch; the nearest text of a route counts. It abstains if no
    route reaches ``min_similarity``.

    Args:
        embed_model: Model for queries and descriptions.
        min_similarity: Cosine below which a route is not taken, in ``[-1, 1]``.

    Raises:
        ConfigurationError: ``min_similarity`` is outside ``[-1, 1]``.
    """

    def __init__(self, embed_model: BaseEmbedding, *, min_similarity: Cosine = 0.0) -> None:
        self.embed_model = embed_model
        self.min_similarity = min_similarity
        self._known: dict[str, Vector] = {}
        self._lock = Lock()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=Lock())

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """Return the nearest route; confidence is the cosine scaled to ``(0, 1]``."""
        if not query.query_str.strip():
            return []
        texts = [
            (text, choice.name)
            for choice in choices
            for text in (choice.description, *choice.examples)
        ]
        vectors = yield from self._vectors([text for text, _ in texts])
        # Embed the text: an embedding in the query is from the routes' model.
        embedding = yield from embed_text(query.query_str, self.embed_model)
        if not any(embedding):
            return []  # the model has no vector for any word of the query
        similarities = cosines(matrix(vectors, dim=len(embedding)), embedding).tolist()
        best, (_, name) = min(
            zip(similarities, texts, strict=True), key=lambda pair: (-pair[0], pair[1][1])
        )
        if best < self.min_similarity:
            return []
        return [Selection(name, max((1 + best) / 2, 1e-9), f"{best:.2f}")]

    def _vectors(self, texts: Sequence[str]) -> Plan[list[Vector]]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            vectors: list[list[float]] = yield embed_texts(new, self.embed_model)
            with self._lock:
                self._known.update(zip(new, vectors, strict=True))
        return [self._known[text] for text in texts]


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

    def __init__(self, *selectors: AnySelector, min_confidence: Share = 0.0) -> None:
        if not selectors:
            raise ConfigurationError("a cascade needs at least one selector")
        self.min_confidence = min_confidence
        self.selectors = tuple(as_selector(selector, "a selector") for selector in selectors)

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
            fitting = [item for item in answer if item.name in names]
            if fitting and (not best or fitting[0].confidence > best[0].confidence):
                best = fitting
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
        tools = [
            ToolMetadata(name=choice.name, description=choice.description) for choice in choices
        ]
        result: SelectorResult = yield self._call(tools, query)
        picks: dict[int, Selection] = {}
        for picked in result.selections:
            if not 0 <= picked.index < len(choices):
                raise ExecutionError(f"{self!r} picked route {picked.index + 1} of {len(choices)}")
            selection = Selection(choices[picked.index].name, reason=picked.reason)
            picks.setdefault(picked.index, selection)
        # LlamaIndex's multi-selectors may have a limit.
        most = getattr(self.selector, "_max_outputs", None)
        if isinstance(self.selector, _SINGLE):
            most = 1
        return list(picks.values())[: most if isinstance(most, int) else None]

    def _call(self, tools: Sequence[ToolMetadata], query: Query) -> Call[SelectorResult]:
        def blocking() -> SelectorResult:
            return self.selector.select(tools, query)

        def attempt() -> Awaitable[SelectorResult]:
            return self.selector.aselect(tools, query)

        return Call(
            lambda: blocking_or_awaited(blocking, attempt),
            None if _blocks(self.selector) else attempt,
        )

    def __repr__(self) -> str:
        return handle_expression(self.selector)  # without this adapter around it


class SelectorObject(Selector):
    """Adapter of any object with ``select(query, choices)``."""

    def __init__(self, selector: Selects) -> None:
        self.selector = selector

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """Return the plan for the picks of the object."""
        function: Callable[..., Any] = self.selector.select
        blocking, asynchronous = either_way(function, query, choices)
        answer = yield from call(Call(blocking, asynchronous))
        return _selections(answer, choices, f"{type(self.selector).__name__}.select")

    def __repr__(self) -> str:
        return handle_expression(self.selector)  # without this adapter around it


def as_selector(selector: AnySelector, what: str) -> Selector:
    """Return the selector; wrap one of LlamaIndex's, or any object with ``select``."""
    if isinstance(selector, Selector):
        return selector
    if isinstance(selector, BaseSelector):
        return LlamaIndexSelector(selector)
    if callable(getattr(selector, "select", None)) and not isinstance(selector, type):
        return SelectorObject(selector)
    raise ConfigurationError(
        f"{what} must be a Selector of ours or of LlamaIndex, or have select(query, choices); got "
        f"{selector!r}"
    )


def _blocks(selector: BaseSelector) -> bool:
    """Return whether the async method is one of LlamaIndex's that blocks the event loop."""
    # LlamaIndex's own selectors store their model there.
    llm, model = getattr(selector, "_llm", None), getattr(selector, "_embed_model", None)
    return (
        not awaits(selector._aselect)  # noqa: SLF001 - there is no public way to see it
        or (isinstance(llm, LLM) and not has_async(llm))
        or (
            isinstance(model, BaseEmbedding)
            and not (embeds_async(model) and awaits(model._aget_text_embedding))  # noqa: SLF001 - it has no public name
        )
    )


@dataclass(frozen=True, slots=True, repr=False)
class RouteRule(Part):
    """Rule that sends a query to a route if all its conditions hold.

    Args:
        route: Name of the route.
        any_of: At least one of these occurs in the query (case-insensitive).
        pattern: Regular expression that matches in the query.
        script: Main script of the query: ``han`` for Chinese, ``kana`` for Japanese, ``hangul`` for
            Korean, ``latin``, ... Languages with the same script, such as English and German, are
            not distinguished: for these use ``any_of`` or ``pattern`` with words of only one
            language, or set the language in ``context``.
        context: Values that the query's ``context`` must have.
        confidence: Confidence of the rule, in ``(0, 1]``.

    Raises:
        ConfigurationError: The rule has no condition, or one that can never hold.
    """

    route: str
    any_of: Sequence[str] = ()
    pattern: str | None = None
    script: str | None = None
    context: Mapping[str, object] = field(default_factory=dict)
    confidence: Portion = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "any_of", tuple(self.any_of))
        if not any((self.any_of, self.pattern, self.script, self.context)):
            raise ConfigurationError(
                f"the rule for {self.route!r} names no condition; "
                "for a route that is always right, make it the router's fallback"
            )
        if self.script not in (None, "none", *RANGES):
            raise ConfigurationError(
                f"no query is written in the script {self.script!r}; write one of "
                f"{', '.join(map(repr, RANGES))}"
            )
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise ConfigurationError(
                f"the pattern {self.pattern!r} of the rule for {self.route!r} is no regular "
                f"expression: {error}"
            ) from error

    def holds(self, query: Query) -> bool:
        """Return whether the query satisfies every condition."""
        text = query.query_str
        folded = text.casefold()
        return (
            (not self.any_of or any(word.casefold() in folded for word in self.any_of))
            and (self.pattern is None or re.search(self.pattern, text) is not None)
            and (self.script is None or dominant_script(text) == self.script)
            and all(query.context.get(key) == value for key, value in self.context.items())
        )


class RuleSelector(Selector):
    r"""Selector of the routes whose rules hold, in the order of the rules.

    It abstains if no rule holds.

    Args:
        rules: Rules in order of precedence.

    Examples:
        >>> rules = RuleSelector([RouteRule("code", pattern=r"[a-z]+_[a-z]+")])
        >>> rules
        RuleSelector([RouteRule(route='code', pattern='[a-z]+_[a-z]+')])
        >>> german = RouteRule("german", pattern=r"(?i)\b(der|die|das|und|wie|für)\b")
        >>> german.holds(Query("Wie viel Urlaub?")), german.holds(Query("days of leave"))
        (True, False)

    """

    def __init__(self, rules: Sequence[RouteRule]) -> None:
        self.rules = tuple(rules)

    def check(self, choices: Sequence[Choice]) -> None:
        """Raise if a rule names an unknown route."""
        names = [choice.name for choice in choices]
        unknown = sorted({rule.route for rule in self.rules} - set(names))
        if unknown:
            raise ConfigurationError(f"rules name the routes {unknown}; there are {names}")

    def select(self, query: Query, choices: Sequence[Choice]) -> list[Selection]:
        """Return the routes whose rules hold."""
        del choices  # checked before
        held = {rule.route: rule for rule in reversed(self.rules) if rule.holds(query)}
        return [
            Selection(rule.route, rule.confidence, "a rule holds")
            for rule in self.rules
            if held.get(rule.route) is rule
        ]
