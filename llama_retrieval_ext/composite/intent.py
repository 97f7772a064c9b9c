"""Retrieval that weighs its legs by what kind of question it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.arguments import check_count, of_type
from llama_retrieval_ext.composite.routing.router import Route, RouterRetriever
from llama_retrieval_ext.composite.routing.rule_selector import RouteRule, RuleSelector
from llama_retrieval_ext.composite.routing.selector import Selector
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.stages.algebra.branches import Unfused, branches, named_legs
from llama_retrieval_ext.stages.algebra.fused import Fused
from llama_retrieval_ext.stages.algebra.fusion import Fusion, resolved_weights
from llama_retrieval_ext.stages.algebra.pipeline import Pipeline
from llama_retrieval_ext.stages.algebra.refine import Refine
from llama_retrieval_ext.stages.fusions.rrf import RRF

GENERAL = "general"


@dataclass(frozen=True, slots=True)
class IntentProfile:
    """How to retrieve for one kind of question.

    Args:
        description: What kind of question, in words for selectors that read.
        weights: Weight of each leg by name; a leg that is missing keeps its own.
        depth: How many hits each leg is asked for; None for its own number.
        filters: Further conditions on metadata.
        refine: Stages behind the fusion, such as `RuleRerank` or `ScoreDecay`.

    Raises:
        ConfigurationError: An argument is of another type.
    """

    description: str
    weights: Mapping[str, float] = field(default_factory=dict)
    depth: int | None = None
    filters: MetadataFilters | None = None
    refine: tuple[Refine, ...] = ()

    def __post_init__(self) -> None:
        of_type(self.weights, Mapping, "weights", instead="write {'vector': 0.7}")
        if self.depth is not None:
            check_count(self.depth, "depth")
        of_type(self.refine, tuple, "refine", instead="write (stage,)")
        for stage in self.refine:
            of_type(stage, Refine, "each of refine")


# Exact before the rest: a quoted phrase or an identifier outranks the words around it.
INTENT_RULES = RuleSelector(
    [
        RouteRule(
            "exact",
            # quoted text, snake_case, camelCase, calls, dotted names, codes such as E1205, but
            # not "A 2023 report"
            pattern=r"[\"“「『][^\"”」』]+[\"”」』]|\w+_\w+|\b[a-z]+[A-Z]\w*|\w+\(\)|\w+\.\w+\.\w+"
            r"|\b[A-Z]{1,4}(?:[-/]?| (?!(?:19|20)\d{2}\b))\d{2,}",
        ),
        RouteRule(
            "comparison",
            pattern=r"(?i)\b(vs\.?|versus|differences? between|compared? (to|with)|better than)"
            r"|\bcompare\b|区别|对比|相比|比较|不同之处|哪个更",
        ),
        RouteRule(
            "time_bound",
            pattern=r"(?i)\b(19|20)\d{2}\b|\b(latest|newest|recent(ly)?|current(ly)?|since)\b"
            r"|\byesterday\b|\b(last|this) (year|month|week|quarter)\b"
            r"|最新|最近|近期|今年|去年|本月|上月|\d{4}年",
        ),
        RouteRule(
            "how_to",
            pattern=r"(?i)\bhow (do|can|should|to|would)\b|\bsteps? (to|for)\b"
            r"|如何|怎么|怎样|步骤|流程|办理",
        ),
        RouteRule(
            "definition",
            pattern=r"(?i)^\s*(what|who) (is|are|was)\b|\bdefin(e|ition)\b|\bmeaning of\b"
            r"|什么是|是什么|是指|的定义|的含义|什么意思",
        ),
    ]
)


def default_profiles(
    *, semantic: str = "vector", exact: str = "keyword"
) -> dict[str, IntentProfile]:
    """Profiles for the intents that `INTENT_RULES` tells apart.

    The weights follow what either kind of search is good at: exact terms are found by keyword
    search, paraphrased questions by vectors. They are a start, to be tuned on one's own questions.

    Args:
        semantic: Name of the leg that goes by meaning.
        exact: Name of the leg that goes by terms.
    """
    return {
        "exact": IntentProfile("an exact term, phrase, code or name", {semantic: 0.3, exact: 0.7}),
        "definition": IntentProfile("what something is", {semantic: 0.5, exact: 0.5}),
        "how_to": IntentProfile("how to do something", {semantic: 0.6, exact: 0.4}),
        "comparison": IntentProfile("how things differ", {semantic: 0.6, exact: 0.4}, depth=50),
        "time_bound": IntentProfile(
            "something of a certain time", {semantic: 0.4, exact: 0.6}, depth=50
        ),
        GENERAL: IntentProfile("any other question", {semantic: 0.5, exact: 0.5}),
    }


class IntentAdaptiveRetriever(RouterRetriever):
    """Legs whose weights, depth, filters and refinement depend on the intent of the query.

    The intent is found by a selector over the profiles: rules by default, or an
    `EmbeddingSelector`, an `LLMSelector`, or a `CascadeSelector` of them. Without a selection the
    profile ``general`` is used. The intent that was found is in the result's ``routes``.

    Args:
        legs: ``a | b``, or retrievers by name.
        profiles: How to retrieve, by intent; ``general`` must be among them.
        selector: Finds the intent; None for `INTENT_RULES`, as far as there are profiles for them.
        fusion: The fusion of the legs, without weights: those are the profile's.
        top_k: How many hits to return when the query does not say; None for all.
        name: Name in traces.

    Raises:
        ConfigurationError: There is no profile ``general``, one weighs a leg that there is not,
            the fusion has weights, or the selector names an intent without a profile.
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
        chosen = default_profiles() if profiles is None else profiles
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
            selector = RuleSelector([rule for rule in INTENT_RULES.rules if rule.route in routes])
        super().__init__(selector, routes, fallback=GENERAL, max_routes=1, top_k=top_k, name=name)
        self._legs = sides

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """The retrievers of the legs."""
        return [leg.retriever for leg in self._legs.legs]

    @property
    def label(self) -> str:
        """The intents."""
        return f"IntentAdaptiveRetriever({self.selector!r}, intents={[*self.legs]})"

    def __repr__(self) -> str:
        return f"IntentAdaptiveRetriever({self._legs!r}, intents={[*self.legs]})"


def _variant(sides: Unfused, fusion: Fusion, profile: IntentProfile, intent: str) -> BaseRetriever:
    names = [leg.name for leg in sides.legs]
    weights = resolved_weights(profile.weights, names, [leg.weight for leg in sides.legs])
    legs = tuple(
        replace(leg, weight=weights[leg.name], top_k=profile.depth or leg.top_k)
        for leg in sides.legs
    )
    fused = Fused(replace(sides, legs=legs), fusion, filters=profile.filters, name=intent)
    return Pipeline(fused, refines=profile.refine, name=intent) if profile.refine else fused
