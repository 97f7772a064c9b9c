"""Stages that remove or move hits: duplicates, thresholds, cuts."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal, TypeAlias

from llama_index.core.schema import BaseNode, MetadataMode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import note_merged
from llama_retrieval_ext.hits import score_of
from llama_retrieval_ext.parameters import Count, Portion
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.scope import source_of_node
from llama_retrieval_ext.text.near_duplicates import first_of_alike, shingles
from llama_retrieval_ext.text.normalization import normal

Alike: TypeAlias = Literal["id", "content", "nearly"]


@dataclass(frozen=True, slots=True, repr=False)
class Dedupe(Refine):
    """Refinement that removes duplicates of better hits; order and scores are unchanged.

    A hit without text, such as an image, duplicates only itself.

    Args:
        by: ``"id"`` for the same node, ``"content"`` for equal texts, ignoring case, white space
            and Unicode form, ``"nearly"`` for texts of nearly the same words.
        at_least: For ``"nearly"``: minimum Jaccard similarity of the words of both texts (of
            character pairs for Chinese), in ``(0, 1]``. Texts that differ only in a number are
            nearly the same: take care with prices and paragraphs of law.

    Raises:
        ConfigurationError: ``by`` is another word, or ``at_least`` is out of range.

    Examples:
        >>> Dedupe()
        Dedupe()

    """

    by: Alike = "content"
    _: KW_ONLY
    at_least: Portion = 0.9

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:  # noqa: ARG002
        """Return the hits without duplicates."""
        if self.by == "id":
            return _first(hits, _node_id)
        if self.by == "content":
            return _first(hits, _content)
        once = _first(hits, _node_id)
        alike = first_of_alike((shingles(_text(hit)) for hit in once), at_least=self.at_least)
        first = dict(zip(map(_node_id, once), alike, strict=True))
        return _first(once, lambda hit: first[_node_id(hit)])


def _first(hits: Sequence[Hit], same: Callable[[Hit], Hashable]) -> list[Hit]:
    first: dict[Hashable, Hit] = {}
    merged: dict[str, str] = {}
    for hit in hits:
        kept = first.setdefault(same(hit), hit)
        if kept is not hit and kept.node_id != hit.node_id:
            merged[hit.node_id] = kept.node_id
    note_merged(merged)
    return list(first.values())


def _node_id(hit: Hit) -> Hashable:
    return hit.node.node_id


def _content(hit: Hit) -> Hashable:
    text = " ".join(normal(_text(hit)).casefold().split())
    return text or (hit.node.node_id,)


def _text(hit: Hit) -> str:
    return hit.node.get_content(metadata_mode=MetadataMode.NONE)


@dataclass(frozen=True, slots=True, repr=False)
class Top(Refine):
    """The first hits of a ranking.

    Args:
        k: Number of hits, at least 1.

    Raises:
        ConfigurationError: ``k`` is below 1.

    Examples:
        >>> Top(10)
        Top(k=10)

    """

    fast: ClassVar[bool] = True
    k: Count

    @property
    def most(self) -> int:
        """``k``."""
        return self.k

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:  # noqa: ARG002
        """Return the first ``k``."""
        return list(hits[: self.k])


@dataclass(frozen=True, slots=True, repr=False)
class BestPart(Refine):
    """The first part of a ranking, and at least as many hits as the query asks for.

    Use it before a stage that should see only the better hits, such as `MMR`.

    Args:
        share: The share of the ranking to keep; above 0 and at most 1.

    Raises:
        ConfigurationError: ``share`` is out of range.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> found = FakeRetriever([("a", 0.9), ("b", 0.8), ("c", 0.7), ("d", 0.6)])
        >>> [hit.node_id for hit in (found >> BestPart()).retrieve("leave")]
        ['a', 'b']

    """

    fast: ClassVar[bool] = True
    share: Portion = 0.5

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """Return the first part."""
        least = query.top_k or query.at_least or 1
        return list(hits[: max(math.ceil(self.share * len(hits)), least)])


@dataclass(frozen=True, slots=True, repr=False)
class Threshold(Refine):
    """Refinement that removes hits with a low score.

    The meaning of a score depends on the stage before: a cosine, or the probability of a reranker
    with a declared scale. Scores of `RRF` depend on ranks alone, and scores normalised by the best
    and worst of a result do not show how good the best is; do not put a limit on these.

    Args:
        min_score: The lowest score to keep; finite.

    Raises:
        ConfigurationError: ``min_score`` is not finite.
        ScoreError: During a query: a hit has no score, or one that is not finite.

    Examples:
        >>> Threshold(0.3)
        Threshold(min_score=0.3)

    """

    fast: ClassVar[bool] = True
    min_score: float

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:  # noqa: ARG002
        """Return the hits to keep."""
        return [hit for hit in hits if score_of(hit) >= self.min_score]


@dataclass(frozen=True, slots=True, repr=False)
class Collapse(Refine):
    """Refinement that keeps the best hits of each source; order and scores are unchanged.

    The source of a hit is the file of its document (``file_path`` in its metadata), so the pages of
    a PDF are one source. A document without a file is its own source.

    As a stage it only removes hits, so its input must be larger than the wanted output. As the
    ``collapse`` argument of a retriever over a store, the retriever fetches more hits as needed.

    Args:
        size: Number of hits to keep of each source, at least 1.
        by: A metadata field to use instead of the source; groups hits by its string or number.

    A node without a source, or with a field value of another type, is always kept. The same source
    in another scope is another source.

    Raises:
        ConfigurationError: ``size`` is below 1, or ``by`` is empty.

    Examples:
        >>> Collapse(2, by="author")
        Collapse(size=2, by='author')

    """

    fast: ClassVar[bool] = True
    size: Count = 1
    _: KW_ONLY
    by: str | None = None

    def __post_init__(self) -> None:
        if self.by is not None and not self.by:
            raise ConfigurationError(
                "by must be the name of a metadata field, got ''; to go by source leave it out"
            )

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:  # noqa: ARG002
        """Return the hits to keep."""
        seen: Counter[Hashable] = Counter()
        first: dict[Hashable, str] = {}
        kept: list[Hit] = []
        merged: dict[str, str] = {}
        for hit in hits:
            group, node_id = self._group(hit.node), hit.node.node_id
            seen[group] += 1
            if seen[group] <= self.size:
                first.setdefault(group, node_id)
                kept.append(hit)
            else:
                merged[node_id] = first[group]
        note_merged(merged)
        return kept

    def _group(self, node: BaseNode) -> Hashable:
        alone = (node.node_id,)  # not equal to any document, string or number
        if self.by is None:
            return source_of_node(node) or alone
        value = node.metadata.get(self.by)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return alone
        return alone if isinstance(value, float) and math.isnan(value) else value


@dataclass(frozen=True, slots=True, repr=False)
class LongContextReorder(Refine):
    """Refinement with the best hits at both ends and the weakest in the middle.

    Models overlook the middle of a long context. Ranks 1, 3, 5, ... come first, then ..., 6, 4, 2.
    This is the only stage whose output is not sorted: scores are unchanged and no longer decrease
    from hit to hit. Put it last. If the query sets a number of hits, the best ones are selected
    here, before the order changes.

    Source:
        Liu et al., "Lost in the Middle: How Language Models Use Long Contexts", TACL 2024,
        https://doi.org/10.1162/tacl_a_00638, which shows the effect but proposes no order; this
        order is our own. LlamaIndex's and LangChain's stages of the same name start with rank 2 if
        the number of hits is even.

    Examples:
        >>> LongContextReorder()
        LongContextReorder()

    """

    fast: ClassVar[bool] = True

    @property
    def keeps_order(self) -> bool:
        """Always false."""
        return False

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """Return the same hits in the new order."""
        answer = hits[: query.top_k]
        return [*answer[::2], *reversed(answer[1::2])]
