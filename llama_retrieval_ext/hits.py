"""Hits and rankings: scores, order, ids, and what is shown of them."""

import math
import re
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, TypeVar

from llama_index.core.schema import BaseNode, NodeWithScore

from llama_retrieval_ext.errors import ScoreError
from llama_retrieval_ext.results import Hit, document_id
from llama_retrieval_ext.scope import Scope, page_in, shown_to, without_allowed
from llama_retrieval_ext.wording import short

Scored = TypeVar("Scored", bound=NodeWithScore)

# Ids that a machine made, which say nothing to a reader.
_UUID: Final = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")


def passage_to_dict(node: BaseNode) -> dict[str, object]:
    """Return a stored passage as JSON, under the names of `Hit.to_dict`."""
    return {
        "node_id": node.node_id,
        "document_id": document_id(node),
        "text": node.get_content(),
        "metadata": without_allowed(node.metadata),
    }


def document_title(hit: Hit) -> str:
    """Return the document title of a hit: file and page, its title, or the id.

    What is of no document and has no name, a rule's sentence or a memory, is called by its text.
    """
    metadata = hit.node.metadata
    id_ = hit.node.ref_doc_id or hit.node.node_id
    is_random = _UUID.fullmatch(id_) is not None
    title = metadata.get("title") if is_random else None
    is_sentence = bool(hit.proof) or "rule" in metadata  # a rule over one node has no edges
    if not title and hit.node.ref_doc_id is None and (is_random or is_sentence):
        title = short(hit.text)
    name = str(metadata.get("file_name") or title or id_)
    page = page_in(metadata)
    return name if page is None else f"{name} p. {page}"


def score_of(hit: NodeWithScore) -> float:
    """Return the score of a hit, or raise `ScoreError` if it has none that is finite."""
    return finite_score(hit.node.node_id, hit.score)


def finite_score(node_id: str, score: float | None) -> float:
    """Return the score if it is a finite number, or raise `ScoreError`."""
    if score is None or not math.isfinite(score):
        raise ScoreError(
            f"node {node_id!r} has the score {score}; a ranking needs finite scores, "
            "so give the retriever that returned it a score"
        )
    return score


def as_hit(hit: NodeWithScore, *, source: str = "") -> Hit:
    """Return a new `Hit` with the same node and score; ``source`` is used if it has none."""
    if isinstance(hit, Hit):
        return hit.model_copy(update={} if hit.source else {"source": source})
    return Hit(node=hit.node, score=hit.score, source=source)


def node_copy(node: BaseNode) -> BaseNode:
    """Return a copy of a node with its own metadata; nested values are shared."""
    return node.model_copy(update={"metadata": dict(node.metadata)})


def hits_shown_to(scope: Scope | None, hits: Sequence[Scored]) -> list[Scored]:
    """Return hits that name no principals but those of the scope; see `shown_to`."""
    if scope is None or scope.principals is None:
        return list(hits)
    nodes = [shown_to(scope, hit.node) for hit in hits]
    return [
        hit if node is hit.node else hit.model_copy(update={"node": node})
        for hit, node in zip(hits, nodes, strict=True)
    ]


def with_path_of(hit: Hit, origin: Hit | None) -> Hit:
    """Return the hit with the path or proof of ``origin``; the same hit if there is none."""
    if origin is None:
        return hit
    kept = ("matched_entities", "hop_distance", "path", "proof", "priority")
    return hit.model_copy(update={name: getattr(origin, name) for name in kept})


def ordered(hits: Iterable[Hit]) -> list[Hit]:
    """Return hits by score, best first, ties by node id; for a repeated id only the best."""
    best: dict[str, Hit] = {}
    by_id = sorted(hits, key=attrgetter("node.node_id"))
    for hit in sorted(by_id, key=score_of, reverse=True):  # which keeps the order of equal ones
        best.setdefault(hit.node.node_id, hit)
    return list(best.values())


def node_ids(ranking: Sequence[NodeWithScore]) -> list[str]:
    """Return the ids of a ranking, in its order."""
    return [hit.node.node_id for hit in ranking]


def scored_ids(ranking: Sequence[NodeWithScore]) -> list[tuple[str, float | None]]:
    """Return the ids of a ranking with their scores, in its order."""
    return [(hit.node.node_id, hit.score) for hit in ranking]
