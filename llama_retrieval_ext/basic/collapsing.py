"""Rankings with a few hits of each document, looked for until they are long enough."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from llama_retrieval_ext.execution.degraded import note_degraded
from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.query import document_of, source_of_node
from llama_retrieval_ext.ranking import Hit
from llama_retrieval_ext.stages.refining.collapse import Collapse
from llama_retrieval_ext.stores.backend import Asked, Found

# The plan for as many hits as it is told.
Deep: TypeAlias = Callable[[int], Plan[list[Hit]]]
# Two hits of a document beside each other are common, more are not.
_FIRST: Final = 2
_GROWTH: Final = 4


def first_depth(top_k: int, *, most: int | None) -> int:
    """How many hits to look at before it is known how many go.

    Args:
        top_k: How many are wanted.
        most: How many hits there are at most to be had at once; None for any number.
    """
    return _within(most, _FIRST * top_k, top_k)


def for_more(asked: Asked, top_k: int) -> Asked:
    """The same search for another number of hits."""
    return replace(asked, search=replace(asked.search, top_k=top_k))


def collapsed(
    hits: Deep, collapse: Collapse, *, top_k: int, most: int | None, source: str
) -> Plan[list[Hit]]:
    """The plan for the first hits of a whole ranking after it was collapsed.

    Args:
        hits: Gives as many of the best hits as it is told.
        collapse: What stays of them.
        top_k: How many are wanted.
        most: How many hits there are at most to be had at once; None for any number.
        source: Who is told to have found too few where there are not so many to be had.
    """
    depth = first_depth(top_k, most=most)
    while True:
        found = yield from hits(depth)
        kept = collapse.of(found)
        if len(kept) >= top_k or len(found) < depth:
            return kept[:top_k]
        if most is not None and depth >= most:
            note_degraded(
                source,
                f"{collapse!r}: there are only {len(kept)} hits instead of {top_k} from the first "
                f"{depth}, and the engine returns no more at once",
            )
            return kept
        depth = _within(most, _GROWTH * depth, top_k)


def settled(found: Sequence[Found], collapse: Collapse, *, top_k: int) -> list[Found] | None:
    """What an engine has collapsed, unless it is too little or depends on the order of ties.

    Args:
        found: Best first, with a document and a node of each more than wanted.
        collapse: What stays of it.
        top_k: How many are wanted.
    """
    by_id = collapse.of(sorted(found, key=lambda each: (-each.score, each.node_id)))
    the_other_way = sorted(found, key=lambda each: each.node_id, reverse=True)
    the_other_way.sort(key=lambda each: -each.score)
    best = by_id[:top_k]
    also = collapse.of(the_other_way)[:top_k]
    if len(by_id) <= top_k or {each.node_id for each in best} != {each.node_id for each in also}:
        return None
    return best if _is_whole(best, found, top_k=top_k) else None


def _is_whole(best: Sequence[Found], found: Sequence[Found], *, top_k: int) -> bool:
    """Whether no group that the engine left out can have a hit among the best.

    One could if groups are smaller than sources: nodes that older versions stored are grouped by
    document. What was left out scores at most as much as the worst group's best hit.
    """
    documents = {document_of(each.node) or each.node_id for each in found}
    if len(documents) <= top_k:  # these are all groups
        return True
    tops: dict[object, float] = {}
    for each in found:
        source = source_of_node(each.node) or each.node_id
        tops[source] = max(each.score, tops.get(source, each.score))
    return best[-1].score >= min(tops.values())


def _within(most: int | None, depth: int, top_k: int) -> int:
    """A depth that can be had; but as many as are wanted, so that the engine can refuse them."""
    return depth if most is None else min(depth, max(most, top_k))
