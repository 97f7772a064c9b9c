"""`StoredRankings`: the ranking rules of a knowledge base, by scope."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.ranking import Ranking

# Rules that another process sets on a server hold after this time, in seconds.
_MAX_AGE_S: Final = 10.0


class ScopedRanking(NamedTuple):
    """The rules of a scope; None for those of all."""

    scope: Scope | None
    ranking: Ranking
    # By its first word, the words of each phrase that has synonyms, and these.
    phrases: Mapping[str, list[tuple[list[str], tuple[str, ...]]]]

    def synonyms(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the synonyms of phrases in the words of a question."""
        for at, word in enumerate(words if self.phrases else ()):
            for phrase, others in self.phrases.get(word, ()):
                if words[at : at + len(phrase)] == phrase:
                    yield from others

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
        rankings: The rules of each scope, those of all first; None before they are read.
    """

    def __init__(self) -> None:
        self._number = 0
        self._read_at = 0.0
        self.rankings: list[ScopedRanking] | None = None

    @property
    def is_old(self) -> bool:
        """Whether another process may have set others since they were read."""
        return time.monotonic() - self._read_at > _MAX_AGE_S

    def update(
        self, read: Callable[[], Mapping[str, str]], words_of: Callable[[str], list[str]]
    ) -> None:
        """Read the rules of each scope; both are JSON. ``words_of`` splits a phrase."""
        number, now = self._number, time.monotonic()
        rankings = [
            _scoped(scope_in(key), Ranking.from_dict(json.loads(text)), words_of)
            for key, text in sorted(read().items())
        ]
        if number == self._number:  # none were set meanwhile
            self._read_at, self.rankings = now, rankings

    def forget(self) -> None:
        """Read the rules again at the next query."""
        self._number += 1
        self.rankings = None


def _scoped(
    scope: Scope | None, ranking: Ranking, words_of: Callable[[str], list[str]]
) -> ScopedRanking:
    phrases: dict[str, list[tuple[list[str], tuple[str, ...]]]] = {}
    for phrase, others in ranking.expansions:
        words = words_of(phrase)
        if words:
            phrases.setdefault(words[0], []).append((words, others))
    return ScopedRanking(scope, ranking, phrases)


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
