"""Reranking by declared rules: without a model, and explainable."""

import math
from collections.abc import Collection, Container, Hashable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import NamedTuple

from llama_index.core.schema import MetadataMode

from llama_retrieval_ext.checks import Part
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import ordered
from llama_retrieval_ext.parameters import Weight
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import ScoreKind, replaced, with_score
from llama_retrieval_ext.results import Contribution, Hit
from llama_retrieval_ext.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RuleWeights(Part):
    """Relative weights of the rules of `RuleRerank`; 0 disables a rule.

    Attributes:
        previous_rank: Weight of the rank before: value 1 for the first hit, 0.5 for the eleventh.
        terms: Weight of the share of the query's words in the text or the title.
        phrase: Weight of the longest part of the query that is in the text word by word.
        title: Weight of the share of the title's words in the query.

    Raises:
        ConfigurationError: A weight is negative or not finite, or all are 0.
    """

    previous_rank: Weight = 1.0
    terms: Weight = 1.0
    phrase: Weight = 0.5
    title: Weight = 0.5

    def __post_init__(self) -> None:
        if not any(getattr(self, field.name) for field in fields(self)):
            raise ConfigurationError("at least one of the weights must be above 0")


# The distance from the first rank at which the value of the previous rank is one half.
_HALF_RANK = 10
# Phrases are searched in this many first words of a query; longer ones are pasted documents.
_LONGEST_PHRASE = 64


@dataclass(frozen=True, slots=True, repr=False)
class RuleRerank(Refine):
    """Refinement that sorts hits by the weighted mean of rules, each in ``[0, 1]``.

    Words are those of keyword search: stemmed, without stop words, and pairs of characters for
    Chinese. A rule without data in a hit, such as a missing title, gives 0. For metadata and dates
    see `Boost`.

    Args:
        weights: The weights of the rules.
        title_key: The metadata key with the title.
        tokenizer: Splits text into words.

    Raises:
        ConfigurationError: A weight is out of range, or an argument has the wrong type.

    Scores are in ``[0, 1]``; ties are sorted by node id. Each rule is one contribution of a hit:
    the rule's value is its score, and the shares sum to the hit's score. Time is linear in the
    length of the text.

    Examples:
        >>> RuleRerank(RuleWeights(title=2))
        RuleRerank(weights=RuleWeights(title=2))

    """

    weights: RuleWeights = field(default_factory=RuleWeights)
    _: KW_ONLY
    title_key: str = "title"
    tokenizer: Tokenizer = field(default_factory=Tokenizer)
    score_kind: ScoreKind = field(default="probability", init=False, repr=False)

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits in the order of the rules."""
        text = query.query_str
        words = self.tokenizer.query_tokens(text)[:_LONGEST_PHRASE]
        terms = _QueryTerms(frozenset(self.tokenizer.query_terms(text)), words)
        return ordered(self._judged(terms, hit, rank) for rank, hit in enumerate(hits, start=1))

    def _judged(self, terms: "_QueryTerms", hit: Hit, rank: int) -> Hit:
        rules = [rule for rule in self._rules(terms, hit, rank) if rule[1] > 0]
        total = math.fsum(weight for _, weight, _ in rules)
        parts = tuple(
            Contribution(name, rank, value, weight / total, weight / total * value)
            for name, weight, value in rules
        )
        # Rounding can raise a mean above its largest value.
        score = min(math.fsum(part.share for part in parts), 1.0)
        return with_score(hit, score, (*replaced(hit, rank), *parts))

    def _rules(
        self, terms: "_QueryTerms", hit: Hit, rank: int
    ) -> Iterator[tuple[str, float, float]]:
        """Yield name, weight and value of each rule."""
        weights = self.weights
        text = hit.node.get_content(metadata_mode=MetadataMode.NONE)
        title = str(hit.node.metadata.get(self.title_key) or "")
        present = self.tokenizer.term_counts(text).keys()
        titled = self.tokenizer.term_counts(title).keys()
        yield "previous rank", weights.previous_rank, _HALF_RANK / (_HALF_RANK + rank - 1)
        yield "terms", weights.terms, coverage(terms.terms, present | titled)
        yield "phrase", weights.phrase, self._phrase(terms, present, text)
        yield "title", weights.title, coverage(self.tokenizer.query_terms(title), terms.terms)

    def _phrase(self, terms: "_QueryTerms", present: AbstractSet[int], text: str) -> float:
        """Return the longest query part in the text as a share; 0 for one word of several."""
        if len(terms.words) == 1:
            return coverage(terms.terms, present)
        if not self.weights.phrase or len(terms.terms & present) <= 1:
            return 0.0
        run = longest_run(terms.words, self.tokenizer.query_tokens(text))
        return run / len(terms.words) if run > 1 else 0.0


class _QueryTerms(NamedTuple):
    """Distinct term ids of a query, and its first words in order."""

    terms: frozenset[int]
    words: list[str]


def coverage(terms: Collection[Hashable], present: Container[Hashable]) -> float:
    """Return the share of the terms that are present; 0 if there are no terms.

    Examples:
        >>> coverage({"annual", "leave"}, {"sick", "leave"})
        0.5

    """
    return sum(term in present for term in terms) / len(terms) if terms else 0.0


def longest_run(terms: Sequence[str], text: Sequence[str]) -> int:
    """Return the length of the longest run of tokens shared by query and text.

    Examples:
        >>> longest_run(["days", "of", "leave"], ["ten", "days", "of", "rest", "and", "leave"])
        2

    """
    places: dict[str, list[int]] = {}
    for index, token in enumerate(terms):
        places.setdefault(token, []).append(index)
    best = 0
    running: dict[int, int] = {}  # length of the run that ends at a position of the query
    for token in text:
        running = {index: running.get(index - 1, 0) + 1 for index in places.get(token, ())}
        best = max(best, *running.values()) if running else best
    return best
