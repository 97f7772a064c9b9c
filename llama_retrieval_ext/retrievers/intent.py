"""Retrieval and refinement that depend on the kind of question."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import CompositionError, ConfigurationError
from llama_retrieval_ext.execution.context import note_details, step
from llama_retrieval_ext.execution.legs import Leg, or_degraded
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.filters import matches, parse_filters
from llama_retrieval_ext.pipeline.branches import (
    Unfused,
    branches,
    chosen_names,
    named_legs,
)
from llama_retrieval_ext.pipeline.chains import refined
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.pipeline.leg_weights import resolved_weights
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.intent_profile import (
    GENERAL,
    IntentProfile,
    default_intent_profiles,
    default_intent_rules,
)
from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
from llama_retrieval_ext.retrievers.routing.rule_selector import RuleSelector
from llama_retrieval_ext.retrievers.routing.selectors import Choice, Selection, Selector, selected
from llama_retrieval_ext.stages.fusion import RRF


class IntentAdaptiveRetriever(RouterRetriever):
    """Retriever whose weights, depth, filters and refinement depend on the query's intent.

    A selector finds the intent among the profiles: rules by default, or an `EmbeddingSelector`, an
    `LLMSelector`, or a `CascadeSelector` of them. Without a selection the profile ``general`` is
    used. The result's ``routes`` has the intent.

    Args:
        legs: ``a | b``, or retrievers by name.
        profiles: Retrieval settings by intent; ``general`` is required.
        selector: Selector of the intent; None for the `default_intent_rules` that have a profile.
        fusion: The fusion of the legs, without weights: the profile sets them.
        top_k: Number of hits if the query sets none; None for all.
        name: Name in traces.

    Raises:
        ConfigurationError: The profile ``general`` is missing, a profile weighs an unknown leg, the
            fusion has weights, or the selector names an intent without a profile.
    """

    def __init__(
        self,
        legs: Unfused | Mapping[str, BaseRetriever | Leg],
        *,
        profiles: Mapping[str, IntentProfile] | None = None,
        selector: Selector | None = None,
        fusion: Fusion | None = None,
        top_k: int | None = None,
        name: str = "intent",
    ) -> None:
        chosen = default_intent_profiles() if profiles is None else profiles
        if GENERAL not in chosen:
            raise ConfigurationError(
                f"a profile for {GENERAL!r} is needed for queries without a clear intent; "
                f"there are {sorted(chosen)}"
            )
        if fusion is not None and fusion.weights is not None:
            raise ConfigurationError(f"give the weights to the profiles, not to {fusion!r}")
        if not isinstance(legs, Unfused | Mapping):
            raise ConfigurationError(
                f"the legs must be a | b, or a mapping of names to retrievers, got {legs!r}"
            )
        sides = legs if isinstance(legs, Unfused) else branches(*named_legs(legs))
        routes = {
            intent: Route(_variant(sides, fusion or RRF(), profile, intent), profile.description)
            for intent, profile in chosen.items()
        }
        if selector is None:
            selector = _rules_for(routes)
        super().__init__(selector, routes, fallback=GENERAL, max_routes=1, top_k=top_k, name=name)
        self._legs = sides

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """Retrievers of the legs."""
        return [leg.retriever for leg in self._legs.legs]

    @property
    def leg_names(self) -> list[str | None]:
        """Given names of the legs."""
        return chosen_names(self._legs.legs)


def _variant(sides: Unfused, fusion: Fusion, profile: IntentProfile, intent: str) -> BaseRetriever:
    names = [leg.name for leg in sides.legs]
    weights = resolved_weights(profile.weights, names, [leg.weight for leg in sides.legs])
    legs = tuple(
        replace(leg, weight=weights[leg.name], top_k=profile.depth or leg.top_k)
        for leg in sides.legs
    )
    fused = FusionRetriever(replace(sides, legs=legs), fusion, filters=profile.filters, name=intent)
    return Pipeline(fused, refines=profile.refine, name=intent) if profile.refine else fused


class IntentAdaptive(Refine):
    """Stage that refines a ranking by the intent profile: ``retriever >> IntentAdaptive``.

    It uses ``filters`` and ``refine`` of a profile; weights and depth of legs apply before there is
    a ranking, in `IntentAdaptiveRetriever`. Without a selection the profile ``general`` is used;
    without that profile the ranking is unchanged. A selector that fails marks the answer degraded.
    The result's details have the intent under ``intents``.

    Args:
        profiles: Refinement by intent.
        selector: Selector of the intent; None for the `default_intent_rules` that have a profile.

    Raises:
        ConfigurationError: A profile has weights or a depth, or the selector names an intent
            without a profile.
        CompositionError: A profile has a stage that breaks the best-first order.

    Examples:
        >>> from llama_retrieval_ext import Threshold, Top
        >>> IntentAdaptive({"exact": IntentProfile("codes and names", refine=(Top(3),))})
        IntentAdaptive({'exact': IntentProfile(description='codes and names', refine=(Top(k=3),))})

    """

    def __init__(
        self, profiles: Mapping[str, IntentProfile], *, selector: Selector | None = None
    ) -> None:
        of_type(profiles, Mapping, "profiles", instead="write {'exact': IntentProfile(...)}")
        for intent, profile in profiles.items():
            _check_refining(intent, profile)
        self.profiles = dict(profiles)
        self.selector = (
            _rules_for(profiles) if selector is None else of_type(selector, Selector, "selector")
        )
        self._choices = [Choice(name, each.description) for name, each in self.profiles.items()]
        self.selector.check(self._choices)

    @property
    def adds(self) -> bool:
        """Whether a stage of a profile adds hits."""
        return any(stage.adds for profile in self.profiles.values() for stage in profile.refine)

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        """Return the plan for the refined ranking."""
        chosen = yield from self._selection(query)
        note_details(intents=[{"name": chosen.name, "reason": chosen.reason}])
        ranking = list(hits)
        profile = self.profiles.get(chosen.name)
        if profile is None:
            return ranking
        if profile.filters is not None:
            condition = parse_filters(profile.filters)
            ranking = [hit for hit in ranking if matches(condition, hit.node.metadata)]
        for stage in profile.refine:
            ranking = yield from step(stage, refined(stage, query, ranking))
        return ranking

    def _selection(self, query: Query) -> Plan[Selection]:
        plan = selected(self.selector, query, self._choices)
        found = yield from or_degraded("intent", plan, [])
        known = (each for each in found if each.name in self.profiles)
        return next(known, Selection(GENERAL, reason="no intent was found"))


def _rules_for(intents: Collection[str]) -> RuleSelector:
    """Return the default rules for these intents."""
    return RuleSelector([rule for rule in default_intent_rules().rules if rule.route in intents])


def _check_refining(intent: str, profile: IntentProfile) -> None:
    """Raise if a profile has settings that apply only before retrieval."""
    of_type(profile, IntentProfile, f"the profile {intent!r}")
    if profile.weights or profile.depth is not None:
        raise ConfigurationError(
            f"the profile {intent!r} has weights or a depth, which decide what the legs retrieve; "
            "use IntentAdaptiveRetriever for them, and give IntentAdaptive filters and refine alone"
        )
    for stage in profile.refine:
        if not stage.keeps_order:
            raise CompositionError(
                f"{stage!r} in the profile {intent!r} leaves the best-first order; put it behind: "
                f"IntentAdaptive(...) >> {stage!r}"
            )
