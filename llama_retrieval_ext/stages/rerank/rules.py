"""Reranking by declared rules: no model, and every point can be explained."""

import math
from collections.abc import Collection, Container, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import NamedTuple

from llama_index.core.schema import MetadataMode

from llama_retrieval_ext.arguments import RecordsArguments
from llama_retrieval_ext.checks import is_number, of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import ScoreKind, replaced, with_score
from llama_retrieval_ext.results import Contribution, Hit, ordered
from llama_retrieval_ext.stages.decay import Recency
from llama_retrieval_ext.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RuleWeights(RecordsArguments):
    """How much each rule of `RuleRerank` counts, relative to the others; 0 switches it off.

    Attributes:
        place: Where the hit stood before: 1 for the first, one half for the eleventh.
        terms: The share of the query's words that the text or the title has.
        phrase: How long a part of the query stands in the text as it is, word by word.
        title: The share of the title's words that the query has.
        recency: The factor of the hit's age, where `RuleRerank` has a recency.

    Raises:
        ConfigurationError: A weight is negative or not finite, or all are 0.
    """

    place: float = 1.0
    terms: float = 1.0
    phrase: float = 0.5
    title: float = 0.5
    recency: float = 0.5

    def __post_init__(self) -> None:
        weights = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, weight in weights.items():
            check_weight(weight, name)
        if not any(weights.values()):
            raise ConfigurationError("at least one of the weights must be above 0")


@dataclass(frozen=True, slots=True, repr=False)
class Boost(RecordsArguments):
    """A weight for hits whose metadata has a certain value.

    Args:
        key: The metadata key.
        values: The value, or several of which one must be there. A list in the metadata has a value
            when it is one of its items.
        weight: How much it counts beside the `RuleWeights`; above 0. What a hit that is not boosted
            lacks, it lacks: to punish a value, boost the others.

    Raises:
        ConfigurationError: The weight is not finite and above 0.

    Examples:
        >>> Boost("kind", "regulation").holds_for({"kind": ["law", "regulation"]})
        True

    """

    key: str
    values: str | float | tuple[str | float, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if check_weight(self.weight, self.key) == 0:
            raise ConfigurationError(f"the weight of the boost for {self.key!r} must be above 0")

    def holds_for(self, metadata: Mapping[str, object]) -> bool:
        """Whether a hit with this metadata is boosted."""
        value = metadata.get(self.key)
        values = self.values if isinstance(self.values, tuple) else (self.values,)
        items = value if isinstance(value, list | tuple | set) else (value,)
        return any(item == each for item in items for each in values)


def check_weight(weight: float, name: str) -> float:
    """The same weight, if it can be one."""
    if not (is_number(weight) and weight >= 0):
        raise ConfigurationError(
            f"the weight of {name!r} must be finite and not negative, got {weight!r}"
        )
    return weight


# The place after which a hit's earlier rank counts half.
_HALF_PLACE = 10
# A phrase is looked for in the first so many words of a query; longer ones are pasted documents.
_LONGEST_PHRASE = 64


@dataclass(frozen=True, slots=True, repr=False)
class RuleRerank(Refine):
    """Hits by the weighted mean of what rules say of them, each in ``[0, 1]``.

    Words are those of keyword search: stemmed, without stop words, of Chinese the pairs of
    characters. A rule that does not apply, as recency without a key, does not count; one that a
    hit has nothing to say to, as a title that is missing, gives it 0.

    Args:
        weights: How much each rule counts.
        title_key: The metadata key with the title.
        recency: How to read a hit's age; None leaves recency out.
        boosts: Further rules, on metadata.
        tokenizer: How text becomes words.

    Raises:
        ConfigurationError: A weight is out of range, or an argument is of another type.

    Scores are in ``[0, 1]``; ties go by node id. Each rule is one of the hit's contributions: its
    own value is the score, and the shares sum to the hit's score. Time is linear in the text.

    Examples:
        >>> RuleRerank(boosts=(Boost("kind", "law"),))
        RuleRerank(boosts=(Boost(key='kind', values='law'),))

    """

    weights: RuleWeights = field(default_factory=RuleWeights)
    _: KW_ONLY
    title_key: str = "title"
    recency: Recency | None = None
    boosts: tuple[Boost, ...] = ()
    tokenizer: Tokenizer = field(default_factory=Tokenizer)
    score_kind: ScoreKind = field(default=ScoreKind.PROBABILITY, init=False, repr=False)

    def __post_init__(self) -> None:
        of_type(self.weights, RuleWeights, "weights", instead="write RuleWeights(terms=...)")
        of_type(self.title_key, str, "title_key")
        of_type(self.tokenizer, Tokenizer, "tokenizer")
        of_type(self.boosts, tuple, "boosts", instead="write (Boost(key, value),)")
        for boost in self.boosts:
            of_type(boost, Boost, "each of boosts", instead="write Boost(key, value)")
        if self.recency is not None:
            of_type(self.recency, Recency, "recency", instead="write Recency(key, half_life=...)")

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits by rules."""
        text = query.query_str
        words = self.tokenizer.query_tokens(text)[:_LONGEST_PHRASE]
        terms = _QueryTerms(frozenset(self.tokenizer.query_terms(text)), words)
        return ordered(self._judged(terms, hit, rank) for rank, hit in enumerate(hits, start=1))

    def _judged(self, terms: "_QueryTerms", hit: Hit, rank: int) -> Hit:
        rules = [rule for rule in self._rules(terms, hit, rank) if rule[1] > 0]
        total = math.fsum(weight for _, weight, _ in rules)
        parts = tuple(
            Contribution(name, rank, value, weight, weight / total * value)
            for name, weight, value in rules
        )
        # Rounding can carry a mean over its largest value.
        score = min(math.fsum(part.share for part in parts), 1.0)
        return with_score(hit, score, (*replaced(hit, rank), *parts))

    def _rules(
        self, terms: "_QueryTerms", hit: Hit, rank: int
    ) -> Iterator[tuple[str, float, float]]:
        """Name, weight and value of each rule."""
        weights, metadata = self.weights, hit.node.metadata
        text = hit.node.get_content(metadata_mode=MetadataMode.NONE)
        title = str(metadata.get(self.title_key) or "")
        present = self.tokenizer.term_counts(text).keys()
        titled = self.tokenizer.term_counts(title).keys()
        yield "place", weights.place, _HALF_PLACE / (_HALF_PLACE + rank - 1)
        yield "terms", weights.terms, coverage(terms.terms, present | titled)
        yield "phrase", weights.phrase, self._phrase(terms, present, text)
        yield "title", weights.title, coverage(self.tokenizer.query_terms(title), terms.terms)
        if self.recency is not None:
            factor = self.recency.factor(metadata)
            age = self.recency.unknown if factor is None else factor
            yield "recency", weights.recency, age
        for boost in self.boosts:
            yield f"boost {boost.key}", boost.weight, float(boost.holds_for(metadata))

    def _phrase(self, terms: "_QueryTerms", present: AbstractSet[int], text: str) -> float:
        """The longest part of the query in the text, beyond a single word unless it is all."""
        if len(terms.words) == 1:
            return coverage(terms.terms, present)
        if not self.weights.phrase or len(terms.terms & present) <= 1:
            return 0.0
        run = longest_run(terms.words, self.tokenizer.query_tokens(text))
        return run / len(terms.words) if run > 1 else 0.0


class _QueryTerms(NamedTuple):
    """The query's distinct terms by their ids, and its first words in their order."""

    terms: frozenset[int]
    words: list[str]


def coverage(terms: Collection[Hashable], present: Container[Hashable]) -> float:
    """The share of the terms that are present; 0 where there are none.

    Examples:
        >>> coverage({"annual", "leave"}, {"sick", "leave"})
        0.5

    """
    return sum(term in present for term in terms) / len(terms) if terms else 0.0


def longest_run(terms: Sequence[str], text: Sequence[str]) -> int:
    """How many tokens in a row stand in the text as they stand in the query, at most.

    Examples:
        >>> longest_run(["days", "of", "leave"], ["ten", "days", "of", "rest", "and", "leave"])
        2

    """
    places: dict[str, list[int]] = {}
    for index, token in enumerate(terms):
        places.setdefault(token, []).append(index)
    best = 0
    running: dict[int, int] = {}  # by the last place in the query, how long the run to it is
    for token in text:
        running = {index: running.get(index - 1, 0) + 1 for index in places.get(token, ())}
        best = max(best, *running.values()) if running else best
    return best
