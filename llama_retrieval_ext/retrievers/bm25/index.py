"""Keyword index of nodes in memory, by bm25s."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from threading import Lock
from typing import NamedTuple, TypeAlias

import bm25s
import numpy as np
import numpy.typing as npt
from llama_index.core.schema import BaseNode

from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import (
    ConfigurationError,
    DuplicateNodeError,
    ScopeError,
    ScopeViolationError,
)
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.formulas.normalisation import LARGEST
from llama_retrieval_ext.schema import DEFAULT_SCHEMA
from llama_retrieval_ext.stores.engine.backend import Candidate
from llama_retrieval_ext.text.tokenizer import Tokenizer
from llama_retrieval_ext.wording import counted

Mask: TypeAlias = npt.NDArray[np.bool_]

# Masks take a byte per node; applications have few conditions, or many tenants.
_MOST_MASK_BYTES = 64 * 2**20
_MOST_MASKS = 1024
# Tokenizers give no empty token, so no query has this one.
_NO_TOKEN = ""
# The smallest score above 0.
_LEAST = np.nextafter(np.float32(0), np.float32(1))


class BuiltIndex:
    """Nodes in the order of their ids, with bm25s's index of their tokens. Immutable."""

    def __init__(self, nodes: Sequence[BaseNode], engine: bm25s.BM25) -> None:
        self.nodes = nodes
        self.engine = engine
        masks = min(_MOST_MASKS, 1 + _MOST_MASK_BYTES // (1 + len(nodes)))
        # Not a method: a cache that references its owner keeps it alive.
        self._mask = lru_cache(masks)(partial(_mask, nodes))

    @classmethod
    def of(
        cls, nodes: Sequence[BaseNode], tokens: Sequence[list[str]], *, k1: float, b: float
    ) -> "BuiltIndex":
        """Return the index of nodes with these tokens."""
        # bm25s's names for the formula: saturation times (k1 + 1), IDF that is never negative.
        engine = bm25s.BM25(k1=k1, b=b, method="atire", idf_method="lucene", backend="numpy")
        if not any(tokens):  # bm25s cannot index a corpus without tokens
            tokens = [[_NO_TOKEN]] * max(1, len(nodes))
        engine.index(tokens, create_empty_token=False, show_progress=False)
        return cls(nodes, engine)

    def search(
        self, tokens: list[str], *, top_k: int, condition: Condition | None
    ) -> list[Candidate]:
        """Return the nodes with the highest scores above 0, best first; ties by node id."""
        token_ids = self.engine.get_tokens_ids(tokens)
        if not token_ids:
            return []
        mask = None if condition is None else self._mask(condition)
        scores = self.engine.get_scores_from_ids(token_ids, weight_mask=mask)
        rows = best(scores, top_k)
        nodes = map(self.nodes.__getitem__, rows.tolist())
        candidates = list(map(Candidate, nodes, scores[rows].tolist()))
        # Check again: callers can change the metadata of a node after its mask was cached.
        stale = tuple(c.node_id for c in candidates if not matches(condition, c.node.metadata))
        if stale:
            raise ScopeViolationError(
                f"the metadata of {counted(len(stale), 'node')} has changed since indexing, and is "
                f"now outside the query's scope or filters: {', '.join(stale[:5])}; add them again",
                stale,
            )
        return candidates


def _mask(nodes: Sequence[BaseNode], condition: Condition) -> Mask:
    fits = (matches(condition, node.metadata) for node in nodes)
    return np.fromiter(fits, np.bool_, len(nodes))


def best(scores: npt.NDArray[np.float32], top_k: int) -> npt.NDArray[np.int64]:
    """Return the positions of the highest scores above 0, best first; ties by position.

    bm25s's own selection also returns scores of 0, and ties in any order.

    Examples:
        >>> print(best(np.array([0, 2, 3, 2, 0], np.float32), 2))
        [2 1]

    """
    floor = _LEAST
    # At least ``top_k`` scores reach what ``top_k`` block maxima reach, and few more: partitioning
    # all scores would take as long as computing them.
    block = 1 + len(scores) // (8 * top_k)
    maxima = np.maximum.reduceat(scores, np.arange(0, len(scores), block))
    if len(maxima) > top_k:
        floor = max(floor, np.partition(maxima, -top_k)[-top_k])
    rows = np.flatnonzero(scores >= floor)
    return rows[np.argsort(-scores[rows], kind="stable")[:top_k]]


class IndexedNode(NamedTuple):
    """Node with its tokens; None if it was loaded with a built index, which does not keep them."""

    node: BaseNode
    tokens: list[str] | None


class KeywordIndex:
    """Nodes by id, with an index that the first search after a change builds.

    Thread-safe: a search sees a change completely or not at all, and waits while another builds the
    index; changes are serialised.

    Attributes:
        tokenizer: Tokenizer of nodes and queries.
        k1: Saturation of repeated terms.
        b: Effect of the document length.
        entries: The current nodes by id. Every change replaces the mapping.
    """

    def __init__(self, tokenizer: Tokenizer, *, k1: float = 1.2, b: float = 0.75) -> None:
        if not (0.0 <= k1 <= LARGEST and 0.0 <= b <= 1.0):
            raise ConfigurationError(
                f"got k1={k1} and b={b}; expected k1 of 0 or more (1.2) and b from 0 to 1 (0.75)"
            )
        self.tokenizer = tokenizer
        self.k1 = k1
        self.b = b
        self.entries: Mapping[str, IndexedNode] = {}
        self._built: BuiltIndex | None = None
        self._lock = Lock()

    def __getstate__(self) -> dict[str, object]:
        # A lock cannot be pickled; a copy builds its own index.
        return {**self.__dict__, "_built": None, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=Lock())

    def search(self, text: str, *, top_k: int, condition: Condition | None) -> list[Candidate]:
        """Return the best nodes for a text; see `BuiltIndex.search`."""
        tokens = self.tokenizer.query_tokens(text)
        return self.built().search(tokens, top_k=top_k, condition=condition)

    def built(self) -> BuiltIndex:
        """Return the index of the current nodes, after building it if they have changed."""
        built = self._built
        if built is None:
            with self._lock:
                built = self._built = self._built or self._build()
        return built

    def load(self, built: BuiltIndex) -> None:
        """Replace all nodes by those of an index that was built before."""
        with self._lock:
            self.entries = {node.node_id: IndexedNode(node, None) for node in built.nodes}
            self._built = built

    def replace(
        self,
        *,
        gone: Collection[str] = (),
        nodes: Iterable[BaseNode] = (),
        within: Condition | None = None,
    ) -> int:
        """Remove some nodes and add others, which replace those with the same id."""
        came = {entry.node.node_id: entry for entry in map(self._entry, nodes)}
        _check_within(came.values(), within)
        with self._lock:
            entries = self.entries
            _check_replaced(came, entries, within)
            out = {i for i in gone if i in entries and matches(within, entries[i].node.metadata)}
            if out or came:
                self.entries = {i: entry for i, entry in entries.items() if i not in out} | came
                self._built = None
            return len(out)

    def _entry(self, node: BaseNode) -> IndexedNode:
        instead = "write [TextNode(text=...)] for texts and [hit.node ...] for hits"
        of_type(node, BaseNode, "each node", instead=instead)
        return IndexedNode(node, self.tokenizer.tokens(DEFAULT_SCHEMA.everything(node)))

    def _build(self) -> BuiltIndex:
        entries = [
            self._entry(entry.node) if entry.tokens is None else entry
            for _, entry in sorted(self.entries.items())
        ]
        self.entries = {entry.node.node_id: entry for entry in entries}
        tokens = [entry.tokens or [] for entry in entries]
        return BuiltIndex.of([entry.node for entry in entries], tokens, k1=self.k1, b=self.b)


def _check_within(came: Iterable[IndexedNode], within: Condition | None) -> None:
    outside = [entry.node.node_id for entry in came if not matches(within, entry.node.metadata)]
    if outside:
        raise ScopeError(
            f"{counted(len(outside), 'node')} outside the scope of this retriever: {outside[:5]}; "
            "put Scope.metadata() into their metadata, or add them to the unbound retriever"
        )


def _check_replaced(
    came: Collection[str], entries: Mapping[str, IndexedNode], within: Condition | None
) -> None:
    for node_id in came:
        if node_id in entries and not matches(within, entries[node_id].node.metadata):
            raise DuplicateNodeError(
                f"the id {node_id!r} is in use outside the scope of this retriever; "
                "give the node another id",
                node_id,
            )
