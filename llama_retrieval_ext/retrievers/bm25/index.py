"""Immutable snapshots of nodes with their BM25 index."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from threading import Lock
from typing import NamedTuple

import bm25s
import numpy as np
import numpy.typing as npt
from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DuplicateNodeError,
    ScopeError,
    ScopeViolationError,
)
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.formulas.scores import LARGEST
from llama_retrieval_ext.retrievers.bm25.postings import Ints, Postings, best
from llama_retrieval_ext.stores.encoding.values import keyword_text
from llama_retrieval_ext.stores.engine.backend import Candidate
from llama_retrieval_ext.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of BM25."""

    k1: float = 1.2
    b: float = 0.75

    def __post_init__(self) -> None:
        if not (0.0 <= self.k1 <= LARGEST and 0.0 <= self.b <= 1.0):
            raise ConfigurationError(
                f"got k1={self.k1} and b={self.b}; expected k1 of 0 or more (1.2) and b from 0 to "
                "1 (0.75)"
            )


Mask = npt.NDArray[np.bool_]

# Masks take a byte per node; applications have few conditions, or many tenants.
_MOST_MASK_BYTES = 64 * 2**20
_MOST_MASKS = 1024


class Counted(NamedTuple):
    """Node with the count of each term in its text."""

    node: BaseNode
    counts: Mapping[int, int]


class KeywordSnapshot:
    """Nodes in the order of their ids, with the BM25 weights of their terms. Immutable.

    bm25s sums the weights. They are computed here, by `formulas.bm25`, and stored in its matrix,
    because bm25s can change an index only by rebuilding it document by document, which is ten times
    slower.
    """

    __slots__ = ("_engine", "_mask", "_rows", "nodes", "parameters", "postings")

    def __init__(
        self, nodes: Mapping[str, BaseNode], postings: Postings, parameters: Parameters
    ) -> None:
        self.nodes = nodes
        self.postings = postings
        self.parameters = parameters
        self._rows = tuple(nodes.values())
        self._engine = _filled_engine(postings, parameters)
        masks = min(_MOST_MASKS, 1 + _MOST_MASK_BYTES // (1 + len(nodes)))
        # Not a method: a cache that references its owner keeps it alive.
        self._mask = lru_cache(masks)(partial(_mask, self._rows))

    def __reduce__(self) -> tuple[object, ...]:
        # Copies and pickles omit what can be recomputed.
        return KeywordSnapshot, (self.nodes, self.postings, self.parameters)

    def search(
        self, terms: Mapping[int, int], *, top_k: int, condition: Condition | None
    ) -> list[Candidate]:
        """Return the nodes with the highest scores above 0, best first; ties by node id."""
        columns = self.postings.columns(terms)
        if not len(columns):
            return []
        scores: npt.NDArray[np.float32] = self._engine.get_scores_from_ids(columns.tolist())
        if condition is not None:
            scores *= self._mask(condition)
        rows = best(scores, top_k)
        candidates = list(map(Candidate, map(self._rows.__getitem__, rows), scores[rows].tolist()))
        _check_unchanged(candidates, condition)
        return candidates

    def changed(self, *, gone: Collection[str], came: Mapping[str, Counted]) -> "KeywordSnapshot":
        """Return a snapshot without the nodes `gone` and with `came`, which replace equal ids.

        Time is linear in the size of the index even for small changes: about 80 ms for 20,000 nodes
        of 80 words.
        """
        stay = {id_ for id_ in self.nodes if id_ not in gone and id_ not in came}
        ids = sorted(chain(filter(stay.__contains__, self.nodes), came))
        number = {id_: row for row, id_ in enumerate(ids)}
        places: Ints = np.fromiter(
            (number[id_] if id_ in stay else -1 for id_ in self.nodes), np.int32, len(self.nodes)
        )
        nodes = {id_: came[id_].node if id_ in came else self.nodes[id_] for id_ in ids}
        added = {number[id_]: counted.counts for id_, counted in came.items()}
        return KeywordSnapshot(nodes, self.postings.changed(places, added), self.parameters)


def _filled_engine(postings: Postings, parameters: Parameters) -> bm25s.BM25:
    # bm25s' names for the formula: saturation with the factor (k1 + 1), IDF that is never negative.
    engine = bm25s.BM25(
        k1=parameters.k1, b=parameters.b, method="atire", idf_method="lucene", backend="numpy"
    )
    engine.scores = {
        "data": postings.weights(k1=parameters.k1, b=parameters.b),
        "indices": postings.documents,
        "indptr": postings.starts,
        "num_docs": len(postings.lengths),
    }
    engine.nonoccurrence_array = None
    return engine


def _mask(nodes: tuple[BaseNode, ...], condition: Condition) -> Mask:
    fits = (matches(condition, node.metadata) for node in nodes)
    return np.fromiter(fits, np.bool_, len(nodes))


def _check_unchanged(candidates: Sequence[Candidate], condition: Condition | None) -> None:
    # Check again: callers can change the metadata of a node after its mask was cached.
    stale = tuple(each.node_id for each in candidates if not matches(condition, each.node.metadata))
    if stale:
        raise ScopeViolationError(
            f"the metadata of {len(stale)} nodes was changed after they were indexed, and is now "
            f"outside the query's scope or filters: {', '.join(stale[:5])}; add them again",
            stale,
        )


class KeywordIndex:
    """Holder of the current snapshot, which each change replaces as a whole.

    Thread-safe: a search uses one snapshot throughout and never blocks; changes are serialised.
    """

    def __init__(self, tokenizer: Tokenizer, snapshot: KeywordSnapshot) -> None:
        self.tokenizer = tokenizer
        self.snapshot = snapshot
        self._changing = Lock()

    @classmethod
    def empty(cls, tokenizer: Tokenizer, parameters: Parameters) -> "KeywordIndex":
        """Return an index without nodes."""
        return cls(tokenizer, KeywordSnapshot({}, Postings.of([]), parameters))

    def __len__(self) -> int:
        return len(self.snapshot.nodes)

    def __getstate__(self) -> dict[str, object]:
        return {"tokenizer": self.tokenizer, "snapshot": self.snapshot}  # locks cannot be pickled

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _changing=Lock())

    def search(self, text: str, *, top_k: int, condition: Condition | None) -> list[Candidate]:
        """Return the best nodes for a text; see `KeywordSnapshot.search`."""
        terms = self.tokenizer.query_terms(text)
        return self.snapshot.search(terms, top_k=top_k, condition=condition)

    def replace(
        self,
        *,
        gone: Collection[str] = (),
        nodes: Iterable[BaseNode] = (),
        within: Condition | None = None,
    ) -> int:
        """Remove some nodes and add others, which replace those with the same id."""
        came = {counted.node.node_id: counted for counted in map(self._counted, nodes)}
        _check_within(came.values(), within)
        with self._changing:
            known = self.snapshot.nodes
            _check_replaced(came, known, within)
            out = {i for i in gone if i in known and matches(within, known[i].metadata)}
            if out or came:
                self.snapshot = self.snapshot.changed(gone=out, came=came)
            return len(out)

    def _counted(self, node: BaseNode) -> Counted:
        if not isinstance(node, BaseNode):
            raise ConfigurationError(
                f"expected LlamaIndex nodes, got {type(node).__name__}; "
                "write [TextNode(text=...)] for texts and [hit.node ...] for hits"
            )
        return Counted(node, self.tokenizer.term_counts(keyword_text(node)))


def _check_within(came: Iterable[Counted], within: Condition | None) -> None:
    outside = [each.node.node_id for each in came if not matches(within, each.node.metadata)]
    if outside:
        raise ScopeError(
            f"{len(outside)} nodes are outside the scope of this retriever: {outside[:5]}; "
            "put Scope.metadata() into their metadata, or add them to the unbound retriever"
        )


def _check_replaced(
    came: Collection[str], known: Mapping[str, BaseNode], within: Condition | None
) -> None:
    for node_id in came:
        if node_id in known and not matches(within, known[node_id].metadata):
            raise DuplicateNodeError(
                f"the id {node_id!r} is in use outside the scope of this retriever; "
                "give the node another id",
                node_id,
            )
