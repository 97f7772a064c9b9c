"""Retrieval and refinement by the kind of question: profiles, rules, retriever and stage."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import Part
from llama_retrieval_ext.errors import CompositionError, ConfigurationError
from llama_retrieval_ext.execution.context import note_details, step
from llama_retrieval_ext.execution.legs import Leg, or_degraded
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.filters import matches, parse_filters
from llama_retrieval_ext.parameters import Advice, Count
from llama_retrieval_ext.pipeline.branches import Unfused, branches, chosen_names, named_legs
from llama_retrieval_ext.pipeline.chains import refined
from llama_retrieval_ext.pipeline.fusion import Fusion, resolved_weights
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
from llama_retrieval_ext.retrievers.routing.selectors import (
    Choice,
    RouteRule,
    RuleSelector,
    Selection,
    Selector,
    selected,
)
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.text.normalization import HAN

GENERAL: Final = "general"


@dataclass(frozen=True, slots=True, repr=False)
class IntentProfile(Part):
    """Retrieval settings for one kind of question.

    Args:
        description: Description of the kind of question, for embedding and LLM selectors.
        weights: Weight of each leg by name; missing legs keep their own.
        depth: The number of hits of each leg; None for its own.
        filters: Additional conditions on metadata.
        refine: Stages after the fusion, such as `RuleRerank` or `ScoreDecay`.

    Raises:
        ConfigurationError: An argument is of another type.
    """

    description: str
    weights: Mapping[str, float] = field(default_factory=dict)
    depth: Count | None = None
    filters: MetadataFilters | None = None
    refine: tuple[Refine, ...] = ()


# Quoted text, snake_case, camelCase, calls, dotted names, codes such as E1205, but not "A 2023
# report".
_TERMS: Final = (
    r"[\"“「『][^\"“”「」『』]+[\"”」』]|\w_\w|\b[a-z]+[A-Z]|\w\(\)|\w\.\w+\.\w"
    r"|\b[A-Z]{1,4}(?:[-/]?| (?!(?:19|20)\d{2}\b))\d{2,}"
)
# References to law: 第九条, 第40条之一, 《劳动法》, Article 5, Art. 6, § 12, Section 3.2, Annex IV.
_LAW: Final = (
    r"第[〇零一二三四五六七八九十百千两\d]+[编章节条款项]|《[^《》]+》|§\s*\d"
    r"|(?i:\b(?:articles?|art\.|sections?|sec\.|clauses?|paragraphs?|para\.|annex|schedule"
    r"|regulation|rule)\s+(?:\d+(?:[.(]\w+\)?)*|[ivxlc]+)\b)"
)
# Names: two capitalised words, one inside a sentence, an acronym (but not a shouted query), and
# Chinese organisations by the suffix of their names.
_NAMES: Final = (
    r"\b[A-Z][a-z]+ [A-Z][a-z]+\b|(?<=[a-z,] )[A-Z][a-z]+\b"
    r"|^(?!(?:[A-Z]+\W+)+[A-Z]+\W*$).*\b[A-Z]{2,}\b"
    rf"|[{HAN}]{{2}}(?:有限公司|股份公司|集团|大学|法院|研究院|委员会|出版社)"
)


class _Intent(NamedTuple):
    """A kind of question: the pattern of its questions, and the search that it needs."""

    name: str
    description: str
    pattern: str
    weights: tuple[float, float] | None = None  # of the searches by meaning and by terms
    depth: int | None = None


# Exact first: a quoted phrase or an identifier outranks the other words.
_INTENTS: Final = (
    _Intent("exact", "an exact term, phrase, code or name", f"{_TERMS}|{_LAW}", (0.3, 0.7)),
    _Intent(
        "comparison",
        "how things differ",
        r"(?i)\b(vs\.?|versus|differences? between|compared? (to|with)|better than)"
        r"|\bcompare\b|区别|对比|相比|比较|不同之处|哪个更",
        depth=50,
    ),
    _Intent(
        "time_bound",
        "something of a certain time",
        r"(?i)\b(19|20)\d{2}\b|\b(latest|newest|recent(ly)?|current(ly)?|since)\b"
        r"|\byesterday\b|\b(last|this) (year|month|week|quarter)\b"
        r"|最新|最近|近期|今年|去年|本月|上月|\d{4}年",
        (0.4, 0.6),
        depth=50,
    ),
    _Intent(
        "how_to",
        "how to do something",
        r"(?i)\bhow (do|can|should|to|would)\b|\bsteps? (to|for)\b"
        r"|如何|怎么|怎样|步骤|流程|办理",
    ),
    _Intent(
        "definition",
        "what something is",
        r"(?i)^\s*(what|who) (is|are|was)\b|\bdefin(e|ition)\b|\bmeaning of\b"
        r"|什么是|是什么|是指|的定义|的含义|什么意思",
    ),
)
# The intents of the default rules, in words.
INTENTS: Final = MappingProxyType({intent.name: intent.description for intent in _INTENTS})
_RULES: Final = RuleSelector(
    [
        *(RouteRule(intent.name, pattern=intent.pattern) for intent in _INTENTS),
        # Last, as "compare Qdrant and Milvus" is a comparison.
        RouteRule("exact", pattern=_NAMES),
    ]
)


def default_intent_rules() -> RuleSelector:
    """Return the rules that classify the intent of English and Chinese questions.

    The intents are ``exact`` (quoted phrases, identifiers, codes, articles of law, names),
    ``comparison``, ``time_bound``, ``how_to`` and ``definition``; the first rule that holds counts.

    Examples:
        >>> sorted({rule.route for rule in default_intent_rules().rules})
        ['comparison', 'definition', 'exact', 'how_to', 'time_bound']

    """
    return _RULES


def rules_for(intents: Collection[str]) -> RuleSelector:
    """Return the default rules for these intents."""
    return RuleSelector([rule for rule in default_intent_rules().rules if rule.route in intents])


def default_intent_profiles(
    *, semantic: str = "vector", exact: str = "keyword"
) -> dict[str, IntentProfile]:
    """Return profiles for the kinds of questions that need another search, and for ``general``.

    Keyword search finds exact terms: in our measurements the weights of ``exact`` gain, and those
    of ``time_bound`` do not lose. All other questions weigh the legs equally: the better search
    there depends on the model and the collection, not on the question, and more weight on vectors
    for ``how_to`` lost as often as it gained. The README has the figures.

    Args:
        semantic: Name of the leg that searches by meaning.
        exact: Name of the leg that searches by terms.
    """
    profiles: dict[str, IntentProfile] = {}
    for intent in _INTENTS:
        if intent.weights is not None or intent.depth is not None:
            weights = dict(zip((semantic, exact), intent.weights or (), strict=False))
            profiles[intent.name] = IntentProfile(intent.description, weights, intent.depth)
    return {**profiles, GENERAL: IntentProfile("any other question")}


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
        legs: Annotated[
            Unfused | Mapping[str, BaseRetriever | Leg],
            Advice("write a | b, or a mapping of names to retrievers"),
        ],
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
        sides = legs if isinstance(legs, Unfused) else branches(*named_legs(legs))
        routes = {
            intent: Route(_variant(sides, fusion or RRF(), profile, intent), profile.description)
            for intent, profile in chosen.items()
        }
        selector = selector or rules_for(routes)
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
        for intent, profile in profiles.items():
            _check_refining(intent, profile)
        self.profiles = dict(profiles)
        self.selector = rules_for(profiles) if selector is None else selector
        self._choices = [Choice(name, profile.description) for name, profile in profiles.items()]
        self.selector.check(self._choices)

    @property
    def adds(self) -> bool:
        """Whether a stage of a profile adds hits."""
        return any(stage.adds for profile in self.profiles.values() for stage in profile.refine)

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        """Return the plan for the refined ranking."""
        plan = selected(self.selector, query, self._choices)
        selections = yield from or_degraded("intent", plan, [])
        fitting = (selection for selection in selections if selection.name in self.profiles)
        chosen = next(fitting, Selection(GENERAL, reason="no intent was found"))
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


def _check_refining(intent: str, profile: IntentProfile) -> None:
    """Raise if a profile has settings that apply only before retrieval."""
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
