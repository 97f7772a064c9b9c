"""`StoredRankings`: the ranking rules of a knowledge base, by scope."""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.filter_syntax import as_metadata_filters
from llama_retrieval_ext.filters import AnyOf, Condition, Not, both, matches
from llama_retrieval_ext.scope import Scope, source_in
from llama_retrieval_ext.stages.ranking import Pin, Ranking, condition_of

# Rules that another process sets on a server hold after this time, in seconds.
_MAX_AGE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ScopedRanking:
    """The rules of a scope, as queries look them up.

    Attributes:
        scope: The scope; None for all.
        ranking: The rules.
        phrases: By its first word, the words of each phrase that has synonyms, and these.
        pins: The pins with their order, by the words of their question; None for every question.
        blocked: The names of blocked documents.
        excluded: The condition of what is blocked by filters, within the scope.
    """

    scope: Scope | None
    ranking: Ranking
    phrases: Mapping[str, list[tuple[list[str], tuple[str, ...]]]]
    pins: Mapping[tuple[str, ...] | None, list[tuple[int, Pin]]]
    blocked: frozenset[str]
    excluded: MetadataFilters | None

    @classmethod
    def of(
        cls, scope: Scope | None, ranking: Ranking, words_of: Callable[[str], list[str]]
    ) -> "ScopedRanking":
        """Return the rules of a scope; ``words_of`` splits a phrase or a question."""
        phrases: dict[str, list[tuple[list[str], tuple[str, ...]]]] = defaultdict(list)
        for phrase, others in ranking.expansions:
            words = words_of(phrase)
            if words:
                phrases[words[0]].append((words, others))
        pins: dict[tuple[str, ...] | None, list[tuple[int, Pin]]] = defaultdict(list)
        for numbered in enumerate(ranking.pins):
            question = numbered[1].query
            pins[tuple(words_of(question)) if question else None].append(numbered)
        blocked = frozenset(block.document for block in ranking.blocks if block.document)
        wheres = [condition_of(block.where) for block in ranking.blocks if block.where]
        excluded: Condition | None = None
        if wheres:
            excluded = AnyOf(tuple(wheres)) if wheres[1:] else wheres[0]
            if scope is not None:
                excluded = both(scope.condition, excluded)
        filters = None if excluded is None else as_metadata_filters(Not(excluded))
        return cls(scope, ranking, dict(phrases), dict(pins), blocked, filters)

    def synonyms(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the synonyms of phrases in the words of a question."""
        for at, word in enumerate(words if self.phrases else ()):
            for phrase, others in self.phrases.get(word, ()):
                if words[at : at + len(phrase)] == phrase:
                    yield from others

    def pinned(self, words: Sequence[str]) -> list[Pin]:
        """Return the pins of a question by its words, and those of every question."""
        numbered = *self.pins.get(None, ()), *self.pins.get(tuple(words), ())
        return [pin for _, pin in sorted(numbered, key=itemgetter(0))]

    def blocks(self, node: BaseNode) -> bool:
        """Return whether the document of a node is blocked by its name."""
        return not self.blocked.isdisjoint(names_of(node)) and matches(
            self.condition, node.metadata
        )

    def holds_for(self, scope: Scope | None) -> bool:
        """Return whether a query in a scope may see nodes of this one."""
        if self.scope is None:
            return True
        if scope is None or self.scope.tenant_id not in (None, scope.tenant_id):
            return False
        return not (self.scope.kb_ids and scope.kb_ids) or not {*self.scope.kb_ids}.isdisjoint(
            scope.kb_ids
        )

    @property
    def condition(self) -> Condition | None:
        """The condition of the nodes that the rules are for; None for all."""
        return None if self.scope is None else self.scope.condition


class StoredRankings:
    """The ranking rules of a knowledge base by scope, read when they are needed.

    Attributes:
        by_tenant: Those of each tenant, with their order; None before they are read.
    """

    def __init__(self) -> None:
        self._number = 0
        self._read_at = 0.0
        self.by_tenant: dict[str | None, list[tuple[int, ScopedRanking]]] | None = None

    @property
    def is_old(self) -> bool:
        """Whether another process may have set others since they were read."""
        return time.monotonic() - self._read_at > _MAX_AGE_S

    def of(self, scope: Scope | None) -> list[ScopedRanking]:
        """Return the rules that a query in a scope may see, the widest first."""
        by_tenant = self.by_tenant or {}
        tenant = None if scope is None else scope.tenant_id
        numbered = [pair for key in {None, tenant} for pair in by_tenant.get(key, ())]
        return [
            ranking
            for _, ranking in sorted(numbered, key=itemgetter(0))
            if ranking.holds_for(scope)
        ]

    def update(
        self, read: Callable[[], Mapping[str, str]], words_of: Callable[[str], list[str]]
    ) -> None:
        """Read the rules of each scope; both are JSON. ``words_of`` splits a phrase."""
        number, now = self._number, time.monotonic()
        rankings: dict[str | None, list[tuple[int, ScopedRanking]]] = defaultdict(list)
        for at, (key, text) in enumerate(sorted(read().items())):
            scope, ranking = scope_in(key), Ranking.from_dict(json.loads(text))
            tenant = None if scope is None else scope.tenant_id
            rankings[tenant].append((at, ScopedRanking.of(scope, ranking, words_of)))
        if number == self._number:  # none were set meanwhile
            self._read_at, self.by_tenant = now, dict(rankings)

    def forget(self) -> None:
        """Read the rules again at the next query."""
        self._number += 1
        self.by_tenant = None


def names_of(node: BaseNode) -> tuple[str, str]:
    """Return by which names rules call the document of a node: its id and its source."""
    return node.ref_doc_id or node.node_id, source_in(node.metadata)


def scope_key(scope: Scope | None) -> str:
    """Return a scope as JSON; raise `ConfigurationError` if it has principals."""
    if scope is None:
        return "[]"
    if scope.principals is not None:
        raise ConfigurationError("rules are for tenants and knowledge bases, not principals")
    return json.dumps([scope.tenant_id, scope.kb_ids and sorted(scope.kb_ids)])


def scope_in(key: str) -> Scope | None:
    """Return the scope of `scope_key`."""
    parts = json.loads(key)
    return Scope(*parts) if parts else None
