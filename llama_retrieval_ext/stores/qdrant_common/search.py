"""Searches and native fusions shared by Qdrant and Qdrant Edge."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, ClassVar, Final

from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.formulas.mmr import maximal_marginal_relevance
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.engine.backend import Candidate, Search
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch, Line, NativeFusion
from llama_retrieval_ext.stores.engine.search import EngineBackend, NativeSearch
from llama_retrieval_ext.stores.qdrant_common.points import NODE
from llama_retrieval_ext.stores.qdrant_common.terms import NO_TERM, Weighed, mask_of
from llama_retrieval_ext.text.segmentation import term_id
from llama_retrieval_ext.text.tokenizer import Tokenizer

_SCORE: Final = attrgetter("score")
_DISTRIBUTION: Final = Normalisation.DISTRIBUTION_BASED
_RAW: Final = Normalisation.NONE

# With unequal weights these engines compute 1 / (rank / weight + constant), unlike our formula.
BY_RANK: Final = NativeFusion(kind=RRF, equal_weights=True)
BY_DISTRIBUTION: Final = NativeFusion(
    kind=WeightedSum, scales=(_DISTRIBUTION, _DISTRIBUTION), equal_weights=True
)
BY_SUM: Final = NativeFusion(kind=WeightedSum, scales=(_RAW, _RAW))
BY_COSINE: Final = NativeFusion(kind=WeightedSum, scales=(Normalisation.COSINE, _RAW))


def fusions_of(kind: str) -> tuple[NativeFusion, ...]:
    """Return the native fusions for a kind of vector score."""
    if kind == "cosine":
        return (BY_RANK, BY_DISTRIBUTION, BY_SUM, BY_COSINE)
    return (BY_RANK, BY_DISTRIBUTION, BY_SUM) if kind == "dot" else (BY_RANK,)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Engine parameters of a fusion.

    Attributes:
        factor: Our score divided by the engine's.
        rank_constant: Constant of a fusion by rank; None for other fusions.
        lines: Linear function of each leg of a sum, by the engine's name for the leg's score. Empty
            for fusions by rank and by distribution.
        constant: Constant summand.
        defaults: Score of each leg of a sum for nodes that the leg did not return.
    """

    factor: float = 1.0
    rank_constant: int | None = None
    lines: Mapping[str, Line] = field(default_factory=dict)
    constant: float = 0.0

    @property
    def defaults(self) -> dict[str, float]:
        """The score that contributes 0, by the engine's name for the leg's score."""
        return {name: line.root for name, line in self.lines.items()}


def recipe_of(how: FusedSearch) -> Recipe:
    """Return the engine parameters of a fusion."""
    if how.by_rank is not None:
        # Ranks start at 0 in the engine, at 1 in this package.
        return Recipe(how.weights[0], rank_constant=int(how.by_rank.k) + 1)
    if how.scales == BY_DISTRIBUTION.scales:
        return Recipe(how.proportions[0])
    lines = {f"$score[{leg}]": line for leg, line in enumerate(how.lines)}
    return Recipe(lines=lines, constant=sum(line.intercept for line in lines.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSearch(NativeSearch):
    """One search, with the classes of the client.

    Attributes:
        query: A vector, or a fusion of legs.
        using: Name of the vectors to search; None if the query names them.
        filter: Filter that every point matches; None for no filter.
        params: Search params; None for the engine's default.
        legs: Searches to fuse, each with its own filter.
    """

    query: Any
    using: str | None = None
    filter: Any = None
    params: Any = None
    legs: tuple["PointSearch", ...] = ()


class PointsSearch(EngineBackend[PointSearch, Any]):
    """Searches of points in the format of this package."""

    has_mmr: ClassVar[bool] = True

    @abstractmethod
    def fusion(self, recipe: Recipe) -> object:
        """Return the client's query for a fusion."""

    def fused_search(
        self, vector: PointSearch, keyword: PointSearch, how: FusedSearch, *, top_k: int
    ) -> PointSearch:
        """Return the engine's fusion; each leg applies its filter before it limits candidates."""
        recipe = recipe_of(how)
        return PointSearch(
            query=self.fusion(recipe),
            top_k=top_k,
            score=lambda score: recipe.factor * score,
            legs=(vector, keyword),
        )

    def scores(self, search: PointSearch, hits: Sequence[Any]) -> list[float]:
        """Return our scores of hits."""
        return [*map(search.score, map(_SCORE, hits))]

    def candidate(self, hit: Any, score: float) -> Candidate:  # noqa: ANN401 - the client's class
        """Return the candidate of a point."""
        return Candidate((hit.payload or {})[NODE], score)

    def embeddings(self, node_ids: Sequence[str]) -> Steps[dict[str, list[float]]]:
        """Return the stored embeddings of existing nodes by id; for MMR."""
        raise NotImplementedError(node_ids)

    def diverse(
        self, embedding: Sequence[float], search: Search, *, lambda_mult: float, candidates: int
    ) -> Call[list[Candidate]]:
        """Return the nodes selected by MMR, with ties by similarity, then by node id.

        The engine's own MMR takes ties in the order of its storage, which differs between requests.
        """
        nearest = replace(search, top_k=candidates)

        def steps() -> Steps[list[Candidate]]:
            (ranking,) = yield from self.rankings([self.vector_search(embedding, nearest)])
            vectors = yield from self.embeddings([candidate.node_id for candidate in ranking])
            ranking = [candidate for candidate in ranking if candidate.node_id in vectors]
            picks = maximal_marginal_relevance(
                [candidate.score for candidate in ranking],
                [vectors[candidate.node_id] for candidate in ranking],
                top_k=search.top_k,
                lambda_mult=lambda_mult,
            )
            return [ranking[index] for index, _ in picks]

        return self.call(steps, empty=[])


def query_terms(
    text: str,
    tokenizer: Tokenizer,
    schema: Schema,
    weights: Mapping[str, float],
    *,
    absent: Callable[[Sequence[str]], Collection[int]] | None = None,
) -> Weighed | None:
    """Return the weighed terms of a query in the fields with a weight; None without terms.

    Those of its tokens that are ``absent`` from all texts that can be found are left out.
    """
    tokens = tokenizer.query_tokens(text)
    counts = Counter(map(term_id, tokens))
    for term in (NO_TERM, *(absent(tokens) if absent else ())):
        counts.pop(term, None)
    # Without a schema no field counts stop words.
    stops = [] if schema.is_default else [*map(term_id, tokenizer.query_stop_words(text))]
    terms: dict[int, float] = {}
    for name, weight in weights.items():
        mask, of_stop_word = mask_of(name), weight * schema.stop_word_weight(name) if stops else 0.0
        for term, count in counts.items():
            terms[term ^ mask] = weight * count
        for term in stops if of_stop_word else ():
            terms[term ^ mask] = terms.get(term ^ mask, 0.0) + of_stop_word
    return (list(terms), list(terms.values())) if terms else None
