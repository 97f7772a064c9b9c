"""What comes back: `Hit`, its `Contribution`s, and `SearchResult`."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.errors import ScoreError
from llama_retrieval_ext.query import KB_KEY
from llama_retrieval_ext.trace import Degradation, Trace

# Characters of a hit's text in a notebook's table.
_SHOWN: Final = 200
# And in its `repr`, where several hits stand one behind the other.
_TOLD: Final = 50


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one leg of a fusion gave to a hit.

    Attributes:
        leg: Name of the leg.
        rank: Where the leg had it, from 1; None where the leg did not find it and votes all the
            same, as in `Borda`.
        score: The leg's own score, as it came; None from a retriever that gives none.
        weight: The leg's weight in the fusion.
        share: What the leg added to the fused score; the shares of additive fusions sum to it.
    """

    leg: str
    rank: int | None
    score: float | None
    weight: float
    share: float

    def to_dict(self) -> dict[str, object]:
        """The contribution as JSON."""
        return {
            "leg": self.leg,
            "rank": self.rank,
            "score": self.score,
            "weight": self.weight,
            "share": self.share,
        }


class Hit(NodeWithScore):
    """A node with its score that also says where it came from.

    Attributes:
        source: Name of the retriever that found it, or of the fusion that ranked it.
        priority: Order among sources that rank before score (rules before search); None where
            unused.
        contributions: What each leg of a fusion gave to the score.
        matched_entities: What the query names and a graph links to the hit: entities, titles and
            phrases.
        hop_distance: Steps in the graph from there to the hit; None for a hit from elsewhere.
        path: These steps in words.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> hit = Hit(node=TextNode(id_="n1", text="..."), score=0.5, source="vector")
        >>> hit.to_dict()["chunk_id"]
        'n1'

    """

    source: str = ""
    priority: int | None = None
    contributions: tuple[Contribution, ...] = ()
    matched_entities: tuple[str, ...] = ()
    hop_distance: int | None = None
    path: str = ""

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of the class in serialised form."""
        return "Hit"

    def __repr__(self) -> str:
        # Pydantic's has the whole node, relationships and all.
        text = self.node.get_content()
        told = text if len(text) <= _TOLD else f"{text[:_TOLD]}…"
        id_, source = self.node.node_id, self.source
        return f"{type(self).__name__}({id_!r}, score={self.score}, {source=}, text={told!r})"

    def to_dict(self, **_: object) -> dict[str, object]:
        """The hit as JSON, under the names that applications use."""
        node = self.node
        known: dict[str, object] = {
            "chunk_id": node.node_id,
            "text": node.get_content(),
            "score": self.score,
            "metadata": dict(node.metadata),
            "knowledge_base_id": node.metadata.get(KB_KEY),
            "document_id": node.ref_doc_id,
            "source": self.source,
        }
        if self.priority is not None:
            known["priority"] = self.priority
        if self.contributions:
            known["contributions"] = [part.to_dict() for part in self.contributions]
        if self.hop_distance is not None:
            known |= {
                "matched_entities": list(self.matched_entities),
                "hop_distance": self.hop_distance,
                "path": self.path,
            }
        return known


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A ranking, with what is missing from it and how it came about.

    Attributes:
        hits: Best first.
        degraded: Parts that failed and were left out; empty when the answer is whole.
        trace: What ran, and how long; None before it is known.
        details: What stages add, such as ``generated_queries``.
    """

    hits: list[Hit]
    degraded: tuple[Degradation, ...] = ()
    trace: Trace | None = None
    details: dict[str, object] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        """What a notebook shows: the hits as a table, and what is missing."""
        rows = "".join(
            f"<tr><td>{rank}</td><td>{_shown_score(hit)}</td><td>{escape(hit.source)}</td>"
            f"<td>{escape(hit.node.get_content()[:_SHOWN])}</td></tr>"
            for rank, hit in enumerate(self.hits, start=1)
        )
        missing = "".join(
            f"<p>degraded: {escape(part.where)}: {escape(part.reason)}</p>"
            for part in self.degraded
        )
        head = "<tr><th>rank</th><th>score</th><th>source</th><th>text</th></tr>"
        return f"<table>{head}{rows}</table>{missing}"

    def to_dict(self) -> dict[str, object]:
        """The result as JSON."""
        return {
            "hits": [hit.to_dict() for hit in self.hits],
            "degraded": [{"where": part.where, "reason": part.reason} for part in self.degraded],
            "trace": None if self.trace is None else self.trace.to_dict(),
            **self.details,
        }


def _shown_score(hit: Hit) -> str:
    return "" if hit.score is None else f"{hit.score:.4g}"


def score_of(hit: NodeWithScore) -> float:
    """The score of a hit.

    Raises:
        ScoreError: It has none, or one that is not finite.
    """
    return finite_score(hit.node.node_id, hit.score)


def finite_score(node_id: str, score: float | None) -> float:
    """The same score, if it can be one.

    Raises:
        ScoreError: It is None or not finite.
    """
    if score is None or not math.isfinite(score):
        raise ScoreError(
            f"node {node_id!r} has the score {score}; a ranking needs finite scores, "
            "so give the retriever that returned it a score"
        )
    return score


def as_hit(hit: NodeWithScore, *, source: str = "") -> Hit:
    """A fresh `Hit` of the same node and score; the source is for one that has none."""
    if isinstance(hit, Hit):
        return hit.model_copy(update={} if hit.source else {"source": source})
    return Hit(node=hit.node, score=hit.score, source=source)


def with_path_of(hit: Hit, found: Hit | None) -> Hit:
    """The hit with the path by which a graph found it; the same hit where none did."""
    if found is None:
        return hit
    kept = ("matched_entities", "hop_distance", "path")
    return hit.model_copy(update={name: getattr(found, name) for name in kept})


def ordered(hits: Iterable[Hit]) -> list[Hit]:
    """Hits by score, best first; equal scores by node id; of a repeated id the best."""
    best: dict[str, Hit] = {}
    for hit in sorted(hits, key=lambda hit: (-score_of(hit), hit.node.node_id)):
        best.setdefault(hit.node.node_id, hit)
    return list(best.values())


def node_ids(ranking: Sequence[NodeWithScore]) -> list[str]:
    """The ids of a ranking, in its order."""
    return [hit.node.node_id for hit in ranking]
