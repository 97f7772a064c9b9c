"""Intent profiles: rules that classify questions, and retrieval settings for each kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from llama_index.core.vector_stores.types import MetadataFilters
from pydantic import ValidationError

from llama_retrieval_ext.arguments import RecordsArguments
from llama_retrieval_ext.checks import check_count, checked_arguments, of_type
from llama_retrieval_ext.errors import InvalidFilterError
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.retrievers.routing.rule_selector import RouteRule, RuleSelector
from llama_retrieval_ext.retrievers.routing.stage_json import stage_from_dict, stage_to_dict
from llama_retrieval_ext.text.normalization import HAN

GENERAL: Final = "general"


@checked_arguments
@dataclass(frozen=True, slots=True, repr=False)
class IntentProfile(RecordsArguments):
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

    def to_dict(self) -> dict[str, object]:
        """Return the profile as JSON, without default values.

        Raises:
            ConfigurationError: A stage of ``refine`` is not serialisable: it holds a model or a
                store, or is not from this package.
        """
        return {
            "description": self.description,
            **({"weights": dict(self.weights)} if self.weights else {}),
            **({} if self.depth is None else {"depth": self.depth}),
            **({} if self.filters is None else {"filters": self.filters.model_dump(mode="json")}),
            **({"refine": [stage_to_dict(stage) for stage in self.refine]} if self.refine else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the profile from the output of `to_dict`.

        Args:
            data: JSON.

        Raises:
            ConfigurationError: A field or stage is unknown, or a value is invalid.

        Examples:
            >>> from llama_retrieval_ext import Top
            >>> profile = IntentProfile("codes", {"keyword": 0.7}, refine=(Top(3),))
            >>> profile.to_dict()["refine"]
            [{'stage': 'Top', 'k': 3}]
            >>> IntentProfile.from_dict(profile.to_dict()) == profile
            True

        """
        given = dict(of_type(data, Mapping, "a profile"))
        if "filters" in given:
            given["filters"] = _filters(given["filters"])
        if "refine" in given:
            stages = of_type(given["refine"], list, "refine")
            given["refine"] = tuple(stage_from_dict(stage) for stage in stages)
        return cls(**given)


def _filters(data: object) -> MetadataFilters:
    try:
        return MetadataFilters.model_validate(data)
    except ValidationError as error:
        raise InvalidFilterError(
            f"the filters of a profile are LlamaIndex's as JSON, got {data!r}: {error}"
        ) from error


# Quoted text, snake_case, camelCase, calls, dotted names, codes such as E1205, but not "A 2023
# report".
_TERMS: Final = (
    r"[\"“「『][^\"”」』]+[\"”」』]|\w+_\w+|\b[a-z]+[A-Z]\w*|\w+\(\)|\w+\.\w+\.\w+"
    r"|\b[A-Z]{1,4}(?:[-/]?| (?!(?:19|20)\d{2}\b))\d{2,}"
)
# References to law: 第九条, 第40条之一, 《劳动法》, Article 5, Art. 6, § 12, Section 3.2, Annex IV.
_LAW: Final = (
    r"第[〇零一二三四五六七八九十百千两\d]+[编章节条款项]|《[^》]+》|§+\s*\d"
    r"|(?i:\b(?:articles?|art\.|sections?|sec\.|clauses?|paragraphs?|para\.|annex|schedule"
    r"|regulation|rule)\s+(?:\d+(?:[.(]\w+\)?)*|[ivxlc]+)\b)"
)
# Names: two capitalised words, one inside a sentence, an acronym (but not a shouted query), and
# Chinese organisations by the suffix of their names.
_NAMES: Final = (
    r"\b[A-Z][a-z]+ [A-Z][a-z]+\b|(?<=[a-z,] )[A-Z][a-z]+\b"
    r"|^(?!(?:[A-Z]+\W+)+[A-Z]+\W*$).*\b[A-Z]{2,}\b"
    rf"|[{HAN}]{{2,}}(?:有限公司|股份公司|集团|大学|法院|研究院|委员会|出版社)"
)
# Exact first: a quoted phrase or an identifier outranks the other words. A name does not: "compare
# Qdrant and Milvus" is a comparison.
_RULES: Final = RuleSelector(
    [
        RouteRule("exact", pattern=f"{_TERMS}|{_LAW}"),
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


def default_intent_profiles(
    *, semantic: str = "vector", exact: str = "keyword"
) -> dict[str, IntentProfile]:
    """Return profiles for the intents of `default_intent_rules`, and for ``general``.

    Keyword search finds exact terms: in our measurements the weights of ``exact`` gain, and those
    of ``time_bound`` do not lose. Other kinds of questions weigh both equally: the better search
    there depends on the model and the collection, not on the question, and more weight on vectors
    for ``how_to`` lost as often as it gained. The README has the figures.

    Args:
        semantic: Name of the leg that searches by meaning.
        exact: Name of the leg that searches by terms.
    """
    return {
        "exact": IntentProfile("an exact term, phrase, code or name", {semantic: 0.3, exact: 0.7}),
        "definition": IntentProfile("what something is", {semantic: 0.5, exact: 0.5}),
        "how_to": IntentProfile("how to do something", {semantic: 0.5, exact: 0.5}),
        "comparison": IntentProfile("how things differ", {semantic: 0.5, exact: 0.5}, depth=50),
        "time_bound": IntentProfile(
            "something of a certain time", {semantic: 0.4, exact: 0.6}, depth=50
        ),
        GENERAL: IntentProfile("any other question", {semantic: 0.5, exact: 0.5}),
    }
