"""Reranking by declared rules: no model, and every point can be explained."""

import math
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

from llama_index.core.schema import MetadataMode

from llama_retrieval_ext.arguments import of_type
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Contribution, Hit, ordered
from llama_retrieval_ext.stages.algebra.refine import Refine
from llama_retrieval_ext.stages.llm.told import told
from llama_retrieval_ext.stages.refining.recency import Recency
from llama_retrieval_ext.stages.reranking.rescored import replaced, with_score
from llama_retrieval_ext.stages.reranking.rule_weights import Boost, RuleWeights
from llama_retrieval_ext.stages.reranking.score_kind import ScoreKind
from llama_retrieval_ext.stages.reranking.term_matching import coverage, longest_run
from llama_retrieval_ext.text.tokenizer import Tokenizer

# The place after which a hit's earlier rank counts half.
_HALF_PLACE = 10
# A phrase is looked for in the first so many words of a query; longer ones are pasted documents.
_LONGEST_PHRASE = 64


@dataclass(frozen=True, slots=True, repr=False)
class RuleRerank(Refine):
    """Hits by the weighted mean of what rules say of them, each in ``[0, 1]``.

    Words are those of keyword search: stemmed, without stop words, of Chinese the pairs of
    characters. A rule that cannot be asked, as recency without a key, does not count; one that a
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
        RuleRerank(boosts=(Boost(key='kind', values='law', weight=1.0),))

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
        wanted = _Wanted(frozenset(self.tokenizer.query_terms(text)), words)
        return ordered(self._judged(wanted, hit, rank) for rank, hit in enumerate(hits, start=1))

    def _judged(self, wanted: "_Wanted", hit: Hit, rank: int) -> Hit:
        rules = [rule for rule in self._rules(wanted, hit, rank) if rule[1] > 0]
        total = math.fsum(weight for _, weight, _ in rules)
        parts = tuple(
            Contribution(name, rank, value, weight, weight / total * value)
            for name, weight, value in rules
        )
        # Rounding can carry a mean over its largest value.
        score = min(math.fsum(part.share for part in parts), 1.0)
        return with_score(hit, score, (*replaced(hit, rank), *parts))

    def _rules(self, wanted: "_Wanted", hit: Hit, rank: int) -> Iterator[tuple[str, float, float]]:
        """Name, weight and value of each rule."""
        weights, metadata = self.weights, hit.node.metadata
        text = hit.node.get_content(metadata_mode=MetadataMode.NONE)
        title = str(metadata.get(self.title_key) or "")
        present = self.tokenizer.term_counts(text).keys()
        titled = self.tokenizer.term_counts(title).keys()
        yield "place", weights.place, _HALF_PLACE / (_HALF_PLACE + rank - 1)
        yield "terms", weights.terms, coverage(wanted.terms, present | titled)
        yield "phrase", weights.phrase, self._phrase(wanted, present, text)
        yield "title", weights.title, coverage(self.tokenizer.query_terms(title), wanted.terms)
        if self.recency is not None:
            factor = self.recency.factor(metadata)
            age = self.recency.unknown if factor is None else factor
            yield "recency", weights.recency, age
        for boost in self.boosts:
            yield f"boost {boost.key}", boost.weight, float(boost.given(metadata))

    def _phrase(self, wanted: "_Wanted", present: AbstractSet[int], text: str) -> float:
        """The longest part of the query in the text, beyond a single word unless it is all."""
        if len(wanted.words) == 1:
            return coverage(wanted.terms, present)
        if not self.weights.phrase or len(wanted.terms & present) <= 1:
            return 0.0
        run = longest_run(wanted.words, self.tokenizer.query_tokens(text))
        return run / len(wanted.words) if run > 1 else 0.0

    def __repr__(self) -> str:
        return told(self)


class _Wanted(NamedTuple):
    """The query's distinct terms by their ids, and its first words in their order."""

    terms: frozenset[int]
    words: list[str]
