"""Retriever that sends each query to the retrievers that a selector picks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Self, TypeAlias

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import IndexNode, NodeWithScore
from llama_index.core.selectors.utils import get_selector_from_llm
from llama_index.core.tools import RetrieverTool

from llama_retrieval_ext.checks import Part
from llama_retrieval_ext.errors import ConfigurationError, ExecutionError, TooFewLegsError
from llama_retrieval_ext.execution.context import current_context, note_degraded, note_details
from llama_retrieval_ext.execution.legs import Ask, Leg, Rankings, ask, or_degraded
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.hits import as_hit
from llama_retrieval_ext.parameters import Advice, Count
from llama_retrieval_ext.pipeline.branches import chosen_names, leg_of, unique_legs
from llama_retrieval_ext.pipeline.fusion import Fusion, resolved_min_success, resolved_weights
from llama_retrieval_ext.pipeline.index_nodes import objects_by_id
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import in_order
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.routing.selectors import (
    AnySelector,
    Choice,
    LlamaIndexSelector,
    Selection,
    as_selector,
    selected,
)
from llama_retrieval_ext.stages.fusion import RRF


@dataclass(frozen=True, slots=True, repr=False)
class Route(Part):
    """Retriever with its description for selectors.

    Args:
        retriever: Target of the route; a `Leg` sets its own timeout and retries.
        description: Contents of the route, for embedding and LLM selectors.
    """

    retriever: BaseRetriever | Leg
    description: str


Routes: TypeAlias = Annotated[
    Sequence[RetrieverTool] | Mapping[str, Route], Advice("or give a mapping of names to Routes")
]


class RouterRetriever(Retriever):
    """Retriever that calls the retrievers a selector picks, and fuses several rankings.

    If the selector fails, abstains, or names an unknown route, the fallback is used; a failure
    marks the answer degraded. If the query has a time limit, the selector fails if it takes more
    than half of the remaining time. If all picked routes fail, the others are called. The trace and
    the result's ``routes`` have the reason of each choice.

    Args:
        selector: One of ours, any LlamaIndex selector, or any object with
            ``select(query, choices)`` that returns names or indices of routes.
        retriever_tools: The routes: LlamaIndex's ``RetrieverTool``s, or `Route`s by name.
        llm: Accepted as in LlamaIndex; a selector has its own.
        objects: Index nodes that carry the objects they refer to.
        object_map: Objects that index nodes refer to, by id.
        verbose: Whether to log each answer; see ``search(query).trace`` for more.
        fallback: Name of the route to use without a selection; None for all routes.
        max_routes: Maximum number of picked routes to use; None for all.
        fusion: Fusion of the rankings of several routes. Its ``min_success`` is the number of
            picked routes that must succeed; if fewer do, the others are called too.
        top_k: Number of hits if the query sets none; None for all.
        callback_manager: LlamaIndex's, for applications that still use one.
        name: Name in traces.

    Raises:
        ConfigurationError: There are no routes; the fallback is not a route; or the selector names,
            or the fusion weighs, an unknown route.
    """

    def __init__(  # noqa: PLR0913 - LlamaIndex's arguments, and what it gets wrong
        self,
        selector: AnySelector,
        retriever_tools: Routes,
        llm: LLM | None = None,
        objects: Sequence[IndexNode] | None = None,
        object_map: Mapping[str, object] | None = None,
        verbose: bool = False,  # noqa: FBT001, FBT002 - LlamaIndex's
        *,
        fallback: str | None = None,
        max_routes: Count | None = None,
        fusion: Fusion | None = None,
        top_k: int | None = None,
        callback_manager: CallbackManager | None = None,
        name: str = "router",
    ) -> None:
        super().__init__(top_k=top_k, name=name, callback_manager=callback_manager)
        del llm
        self._verbose = verbose
        self.object_map = objects_by_id(objects, object_map)
        self.selector = as_selector(selector, "selector")
        self.legs, self.choices = _routes(retriever_tools)
        self.selector.check(self.choices)
        self.fallback = fallback
        self.max_routes = max_routes
        self.fusion = RRF() if fusion is None else fusion
        self.min_success = resolved_min_success(None, self.fusion, legs=len(self.legs))
        weights = [leg.weight for leg in self.legs.values()]
        self.weights = resolved_weights(self.fusion.weights, [*self.legs], weights)
        if fallback is not None and fallback not in self.legs:
            raise ConfigurationError(
                f"the fallback {fallback!r} is no route; there are {[*self.legs]}"
            )

    @classmethod
    def from_defaults(
        cls,
        retriever_tools: Routes,
        llm: LLM | None = None,
        selector: AnySelector | None = None,
        select_multi: bool = False,  # noqa: FBT001, FBT002 - LlamaIndex's
    ) -> Self:
        """Return a router from LlamaIndex's arguments: a selector, or an LLM for its default one.

        Raises:
            ConfigurationError: Both are missing.
        """
        if selector is not None:
            return cls(selector, retriever_tools)
        if llm is None:
            raise ConfigurationError("RouterRetriever.from_defaults needs selector= or llm=")
        chosen = get_selector_from_llm(llm, is_multi=select_multi)
        return cls(chosen, retriever_tools, max_routes=None if select_multi else 1)

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """Retrievers of all routes."""
        return [leg.retriever for leg in self.legs.values()]

    @property
    def leg_names(self) -> list[str | None]:
        """Given names of the legs."""
        return chosen_names([*self.legs.values()])

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Let the selector choose, run the chosen routes, fuse if several."""
        selections = yield from or_degraded(self.name, self._picked(query), [])
        if not selections:
            names = [*self.legs] if self.fallback is None else [self.fallback]
            reason = "fallback: all routes" if self.fallback is None else "fallback"
            selections = [Selection(name, reason=reason) for name in names]
        _note_routes(selections)
        picked = {selection.name for selection in selections}
        others = [
            Selection(name, reason="every picked route failed")
            for name in self.legs
            if name not in picked
        ]
        least = min(self.min_success, len(selections))
        rankings = yield from self._ask(query, selections, min_success=0 if others else least)
        if others and len(rankings) < max(least, 1):
            _note_routes(others)
            selections = [*selections, *others] if rankings else others
            missing = least - len(rankings)
            rankings.update((yield from self._ask(query, others, min_success=missing)))
        if len(rankings) < least:
            raise TooFewLegsError(
                f"{len(rankings)} of {len(self.legs)} routes answered, at least {least} must", {}
            )
        return self._joined(selections, rankings)[: query.top_k]

    def _picked(self, query: Query) -> Plan[list[Selection]]:
        answer = yield from selected(self.selector, query, self.choices)
        for item in answer:
            if not 0 < item.confidence <= 1:
                raise ExecutionError(f"{item} has a confidence that is not in (0, 1]")
        unique = {selection.name: selection for selection in reversed(answer)}
        picked = [
            item for item in answer if unique.get(item.name) is item and item.name in self.legs
        ]
        if len(picked) < len(unique):
            missing = sorted(set(unique) - set(self.legs))
            note_degraded(self.name, f"the selector named routes that there are not: {missing}")
        return picked[: self.max_routes]

    def _ask(
        self, query: Query, selections: Sequence[Selection], *, min_success: int
    ) -> Plan[Rankings]:
        """Return the plan for the rankings of the routes that succeed, by name."""
        child = self._for_children(query)
        asks = {selection.name: Ask(self.legs[selection.name], child) for selection in selections}
        report = None if len(selections) == 1 else current_context().on_partial
        return ask(
            asks,
            min_success=min_success,
            on_answer=report and (lambda rankings: report(self._fused(selections, rankings))),
        )

    def _joined(
        self, selections: Sequence[Selection], rankings: Mapping[str, Sequence[NodeWithScore]]
    ) -> list[Hit]:
        """Return the fused ranking; a single ranking is unchanged."""
        if len(selections) == 1:
            return in_order(
                [as_hit(hit, source=name) for name, only in rankings.items() for hit in only]
            )
        return self._fused(selections, rankings)

    def _fused(
        self, selections: Sequence[Selection], rankings: Mapping[str, Sequence[NodeWithScore]]
    ) -> list[Hit]:
        weights = {selection.name: self.weights[selection.name] for selection in selections}
        return self.fusion.fuse_legs(rankings, weights, None, self.name)

    def _get_prompt_modules(self) -> PromptMixinType:
        if isinstance(self.selector, LlamaIndexSelector):
            return {"selector": self.selector.selector}
        return {}


def _note_routes(taken: Sequence[Selection]) -> None:
    note_details(
        routes=[
            {"name": selection.name, "confidence": selection.confidence, "reason": selection.reason}
            for selection in taken
        ]
    )


def _routes(routes: Routes) -> tuple[dict[str, Leg], list[Choice]]:
    if not routes:
        raise ConfigurationError("a router needs at least one route")
    named: list[tuple[str, BaseRetriever | Leg, str]] = []
    if isinstance(routes, Mapping):
        named += [(name, route.retriever, route.description) for name, route in routes.items()]
    else:
        for tool in routes:
            named.append((tool.metadata.get_name(), tool.retriever, tool.metadata.description))
    legs = unique_legs(leg_of(part, name=name) for name, part, _ in named)
    choices = [Choice(leg.name, why) for leg, (*_, why) in zip(legs, named, strict=True)]
    return {leg.name: leg for leg in legs}, choices
