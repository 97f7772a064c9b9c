"""`StoredWords`: the words of a knowledge base, by which questions are corrected."""

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from threading import Event, Lock, Thread
from typing import Final
from weakref import WeakValueDictionary

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.execution.context import call, current_context, note_hint
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.filters import SCOPE_KEYS, matches
from llama_retrieval_ext.knowledge_base.columns import StoredColumns
from llama_retrieval_ext.knowledge_base.rankings import StoredRankings
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Correction
from llama_retrieval_ext.scope import TENANT_KEY, Scope
from llama_retrieval_ext.stores.engine.backend import Backend, Search
from llama_retrieval_ext.text.correction import Replacement, Vocabulary, replacements
from llama_retrieval_ext.text.tokenizer import Tokenizer

_logger = logging.getLogger(__name__)
# Reads the nodes of a scope; of all for None.
Read = Callable[[Scope | None], Iterable[BaseNode]]
Unnoted = Callable[[Scope | None, Vocabulary], int | None]
# Tenants whose words are kept: the least recently used are read again.
_MOST_TENANTS: Final = 64
_MOST_SCOPES: Final = 1_000  # of a tenant, whose groups are kept
# A query waits for the words of some thousand nodes; of more they are read beside the queries.
_WAIT_S: Final = 1.0
# Words that other processes add to a server are proposed after this time, in seconds. They count as
# known, and deleted ones as unknown, at once: a server is asked about each correction.
_MAX_AGE_S: Final = 900.0


@dataclass(slots=True, eq=False)
class _Words:
    """The vocabulary of a tenant, or of all."""

    vocabulary: Vocabulary
    text_of: Callable[[BaseNode], str]
    max_age_s: float
    due: float = 0.0  # the time of the next reading
    is_complete: Event = field(default_factory=Event)
    # Nodes that were written, or None for deleted ones, while the others are read.
    written: list[tuple[str, BaseNode | None]] = field(default_factory=list)
    slots: dict[str, int] = field(default_factory=dict)  # of the rows of written nodes
    # Written nodes that may have a row of an earlier version, to which a failed write returns.
    replaced: set[str] = field(default_factory=set)
    is_current: bool = True
    # The store's number of changes that were not noted, since all its texts are known.
    unnoted: int | None = None
    groups: dict[Scope | None, tuple[int, list[Hashable]]] = field(default_factory=dict)
    # By metadata key, a number that no node exceeds.
    largest: dict[str, float] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def write(self, node_id: str, node: BaseNode | None, slot: int) -> None:
        """Add, replace or remove a node, now or after the others were read."""
        with self.lock:
            if node is None and self.slots.get(node_id, slot) != slot:
                self.replaced.discard(node_id)
                return  # the row of an earlier version
            if node is None:
                self.is_current &= node_id not in self.replaced
            elif node_id in self.vocabulary or not self.is_complete.is_set():
                self.replaced.add(node_id)
            self.slots[node_id] = slot
            if not self.is_complete.is_set():
                self.written.append((node_id, node))
                return
        self._put(node_id, node)

    def read(self, nodes: Iterable[BaseNode]) -> None:
        """Add the stored nodes, then what was written meanwhile; remove those that are gone."""
        gone = self.vocabulary.keys
        for node in nodes:
            self._put(node.node_id, node)
            gone.discard(node.node_id)
        for node_id in gone:
            self._put(node_id, None)
        while True:
            with self.lock:
                written, self.written = self.written, []
                if not written:
                    self.is_complete.set()
                    return
            for node_id, changed in written:
                self._put(node_id, changed)

    def _put(self, node_id: str, node: BaseNode | None) -> None:
        if node is None:
            self.vocabulary.remove(node_id)
            return
        self.vocabulary.put(node_id, self.text_of(node), _group_of(node))
        with self.lock:
            for key, value in node.metadata.items():
                if is_number(value) and value > self.largest.get(key, 0.0):
                    self.largest[key] = value

    def groups_of(self, scope: Scope | None) -> list[Hashable]:
        """Return the groups whose nodes a scope can see."""
        groups = self.vocabulary.groups
        if scope is None:
            return groups
        kept = self.groups.get(scope)
        if kept is None or kept[0] != len(groups):
            condition = scope.condition
            if len(self.groups) >= _MOST_SCOPES:  # one for each set of principals
                self.groups = {}
            seen = [g for g in groups if matches(condition, dict(g))]  # type: ignore[call-overload]  # of `_group_of`
            kept = self.groups[scope] = len(groups), seen
        return kept[1]


class StoredWords:
    """The words of a knowledge base, by tenant; read at the first question, then kept up to date.

    All objects of a knowledge base in a process share it. Words are proposed to a scope only if a
    node has them that it can see: they are counted by tenant, knowledge base and principals.
    """

    def __init__(self) -> None:
        self.n_noted = 0  # changes of the store: rows that were written, and deletions
        self.rankings = StoredRankings()
        self.columns = StoredColumns()
        self._tenants: OrderedDict[str | None, _Words] = OrderedDict()
        self._lock = Lock()

    def write(self, nodes: Sequence[BaseNode], slot: int) -> None:
        """Note nodes that were added or replaced, with their rows in a slot; see `row_id`."""
        self.columns.note(map(attrgetter("node_id"), nodes))
        with self._lock:
            tenants = dict(self._tenants)
        for node in nodes if tenants else ():
            for tenant in {None, node.metadata.get(TENANT_KEY)} & tenants.keys():
                tenants[tenant].write(node.node_id, node, slot)
        self.n_noted += len(nodes)

    def delete(self, node_ids: Sequence[str], slot: int) -> None:
        """Note nodes whose rows in a slot were deleted."""
        self.columns.note(node_ids)
        with self._lock:
            tenants = [*self._tenants.values()]
        for words in tenants:
            for node_id in node_ids:
                words.write(node_id, None, slot)
        self.n_noted += 1

    def absent(
        self, tokens: Sequence[str], scope: Scope, n_changes: Callable[[], int]
    ) -> Collection[int]:
        """Return the terms of a query's tokens that no text of a scope has.

        There are none unless all texts of the scope are known: they were read, and each change of
        the store since then was noted, none made beside the knowledge base.
        """
        with self._lock:
            words = self._tenants.get(scope.tenant_id)
        n_noted = self.n_noted  # before the other number, which is never less
        if words is None or not words.is_current or words.unnoted != n_changes() - n_noted:
            return ()
        return words.vocabulary.absent(tokens, words.groups_of(scope))

    def largest(self, scope: Scope | None, key: str) -> float:
        """Return a number that no node of a tenant exceeds under a metadata key.

        It is infinite until the nodes are read, and where other processes may write larger ones.
        """
        with self._lock:
            words = self._tenants.get(None if scope is None else scope.tenant_id)
        if words is None or not words.is_complete.is_set() or words.max_age_s != math.inf:
            return math.inf
        return words.largest.get(key, 0.0)

    def forget(self) -> None:
        """Read the words again at the next question."""
        self.rankings.forget()
        self.columns.forget()
        with self._lock:
            self._tenants.clear()

    def of(
        self, scope: Scope | None, made: Callable[[], _Words], read: Read, unnoted: Unnoted
    ) -> _Words:
        """Return the words of the tenant of a scope; start reading them if that is due."""
        tenant = None if scope is None else scope.tenant_id
        with self._lock:
            words = self._tenants.get(tenant)
            if words is None or not words.is_current:
                words = self._tenants[tenant] = made()
                while len(self._tenants) > _MOST_TENANTS:
                    self._tenants.popitem(last=False)
            if time.monotonic() >= words.due:
                words.due = time.monotonic() + words.max_age_s
                Thread(target=self._read, args=(words, tenant, read, unnoted), daemon=True).start()
            self._tenants.move_to_end(tenant)
            return words

    def _read(self, words: _Words, tenant: str | None, read: Read, unnoted: Unnoted) -> None:
        scope = None if tenant is None else Scope(tenant)
        try:
            words.read(read(scope))
            words.unnoted = unnoted(scope, words.vocabulary)
        except Exception as error:  # noqa: BLE001 - a hint says that questions are not corrected
            _logger.info("the words of a knowledge base could not be read: %s", error)
            with self._lock:
                if self._tenants.get(tenant) is words:  # the next question tries again
                    del self._tenants[tenant]


# Module state, because all objects of one knowledge base share its words.
_shared: WeakValueDictionary[Hashable, StoredWords] = WeakValueDictionary()
_creating: Final = Lock()


def words_of(identity: Hashable | None) -> StoredWords:
    """Return the words that all objects of a knowledge base share; new ones for None."""
    if identity is None:
        return StoredWords()
    with _creating:
        return _shared.setdefault(identity, StoredWords())


@dataclass(frozen=True, slots=True)
class Correcting:
    """Corrects the questions to a knowledge base.

    Attributes:
        words: Its words.
        read: Reads its nodes.
        unnoted: Returns the number of changes of its store that `words` has not noted, if a
            vocabulary has all texts of a scope; else None.
        text_of: Returns the searched text of a node.
        backend: Its store, which is asked about each correction if other processes write to it.
        tokenizer: The tokenizer of its keyword search.
        is_shared: Whether other processes can write to it.
    """

    words: StoredWords
    read: Read
    unnoted: Unnoted
    text_of: Callable[[BaseNode], str]
    backend: Backend
    tokenizer: Tokenizer
    is_shared: bool

    def known_words(self, scope: Scope | None) -> _Words:
        """Return the words of the tenant of a scope, which may still be read."""
        age_s = _MAX_AGE_S if self.is_shared else math.inf

        def made() -> _Words:
            return _Words(Vocabulary(self.tokenizer), self.text_of, age_s)

        return self.words.of(scope, made, self.read, self.unnoted)

    def corrected(self, query: Query) -> Plan[Query]:
        """Return the plan for the query with the words that it was probably meant to have."""
        words = self.known_words(query.scope)
        if not words.is_complete.is_set():
            limit_s = current_context().remaining_s()
            wait_s = _WAIT_S if limit_s is None else min(_WAIT_S, limit_s / 2)
            yield Call(lambda: words.is_complete.wait(wait_s))
        if not words.is_complete.is_set():
            note_hint(
                "typing errors are not corrected yet: the words of all passages are being read"
            )
            return query
        text, groups = query.query_str, words.groups_of(query.scope)
        corrections = replacements(text, words.vocabulary, groups)
        if self.is_shared:
            corrections = yield from self._confirmed(corrections, query.scope)
        if not corrections:
            return query
        for part in reversed(corrections):
            text = f"{text[: part.start]}{part.meant}{text[part.end :]}"
        pairs = {part.typed: part.meant for part in corrections}
        note_hint(Correction(query.query_str, text, pairs))
        return replace(query, query_str=text)

    def _confirmed(
        self, corrections: Sequence[Replacement], scope: Scope | None
    ) -> Plan[list[Replacement]]:
        """Return the replacements that are right now: another process may have written."""
        search = Search(1, None if scope is None else scope.condition, scope)
        confirmed: list[Replacement] = []
        for part in corrections:
            has_meant = yield from call(self.backend.keyword(part.meant, search))
            has_typed = yield from call(self.backend.keyword(part.typed, search))
            confirmed += [part] if has_meant and not has_typed else []
        return confirmed


def _group_of(node: BaseNode) -> Hashable:
    """Return what of a node's metadata decides which scopes see it."""
    return tuple(
        (key, tuple(value) if isinstance(value, list) else value)
        for key in SCOPE_KEYS
        if (value := node.metadata.get(key)) is not None
    )
