"""`Curating`: what a knowledge base does to every query and its hits, by words and by rules."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from operator import attrgetter
from typing import Final, Protocol

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.dates import VALID_FROM, VALID_TO, holds
from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.execution.context import (
    current_context,
    degraded_count,
    degraded_since,
    note_degraded,
    note_details,
    step,
)
from llama_retrieval_ext.execution.hints import conclude
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.interpretation import Interpretation
from llama_retrieval_ext.knowledge_base.correcting import Correcting
from llama_retrieval_ext.knowledge_base.interpreting import Interpreting
from llama_retrieval_ext.knowledge_base.rankings import ScopedRanking, StoredRankings, names_of
from llama_retrieval_ext.llm.functions import AnyLLM
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.decay import holding_first, with_holding
from llama_retrieval_ext.stages.ranking import Pin, boosted, least_share, placed

# Hits that boosts reorder, at least; fewer for boosts whose weights add up to little. On movies,
# with votes of weight .1 and .2, nDCG@10 is the same for 20 as for 100, at a third of the cost of
# 50 beyond that of a search.
_CANDIDATES: Final = 50
_FEW_CANDIDATES: Final = 20
_LITTLE: Final = 0.25
_GROWTH: Final = 4
_MOST_BLOCKED: Final = 20  # blocked hits for which boosts make room at first
_ENDS: Final = frozenset({VALID_FROM, VALID_TO})


class Recorder(Protocol):
    """A log of the queries of a knowledge base, such as a `QueryLog`."""

    def record(
        self,
        query: Query,
        hits: Sequence[Hit],
        *,
        ms: float,
        degraded: Sequence[str],
        hints: Sequence[str],
    ) -> str:
        """Write a query and return its id; raise `StoreUnavailableError` if that fails."""
        ...

    def clicked(self, result: str, hit: str, *, scope: Scope | None = None) -> None:
        """Record that somebody opened a hit of a query that a scope sees."""
        ...

    def answered(self, result: str, *, good: bool, scope: Scope | None = None) -> None:
        """Record whether what was made of a query was good."""
        ...

    def require(self, *, scope: bool, principals: bool) -> None:
        """Require a scope, or principals, for reading from now on."""
        ...

    def delete(self, *, scope: Scope) -> int:
        """Delete the rows of a scope."""
        ...


@dataclass(slots=True)
class Curating:
    """Corrects the queries of a knowledge base, orders their hits by its rules, and logs them.

    Attributes:
        correcting: Corrects typing errors.
        stored: The rules, by scope.
        read: Reads them.
        find: Returns the nodes of a document by its name, in a scope.
        interpreting: Finds filters in the words of queries.
        log: Records the queries; None for no log.
    """

    correcting: Correcting
    stored: StoredRankings
    read: Callable[[], dict[str, str]]
    find: Callable[[str, Scope | None], Iterable[BaseNode]]
    interpreting: Interpreting
    log: Recorder | None = None

    def plan(self, query: Query, search: Callable[[Query], Plan[list[Hit]]]) -> Plan[list[Hit]]:
        """Return the plan for the hits of a query, which is not part of a curated one."""
        return self.recorded(query, partial(self._curated, search))

    def recorded(self, query: Query, search: Callable[[Query], Plan[list[Hit]]]) -> Plan[list[Hit]]:
        """Return the plan of a search that is recorded, unless it is part of another."""
        # An experiment, whose pipelines share rankings, is none of what people ask.
        is_asked = current_context().session.shared_rankings is None
        if self.log is None or query.is_recorded or not is_asked:
            return (yield from search(query))
        since, begun = degraded_count(), time.perf_counter()
        hints_before = len(current_context().session.hints)
        hits = yield from search(query.unchecked(is_recorded=True))
        ms = 1e3 * (time.perf_counter() - begun)
        degraded = [part.where for part in degraded_since(since)]
        hints = yield from conclude(has_hits=bool(hits), since=hints_before)
        record = partial(self.log.record, query, hits, ms=ms, degraded=degraded, hints=hints)
        try:
            query_id: str = yield Call(record)
            note_details(query_id=query_id)
        except StoreUnavailableError as error:
            note_degraded("log", error)
        return hits

    def _curated(self, search: Callable[[Query], Plan[list[Hit]]], query: Query) -> Plan[list[Hit]]:
        query, typed = query.unchecked(is_curated=True, synonyms=()), query.query_str
        if query.correct:
            query = yield from self.correcting.corrected(query)
        else:
            self.correcting.known_words(query.scope)  # reads them, for `StoredWords.absent`
        if query.interpret:
            query = yield from self.interpreting.interpreted(query, typed)
        if self.stored.by_tenant is None or (self.correcting.is_shared and self.stored.is_old):
            words_of = self.correcting.tokenizer.query_tokens
            yield Call(lambda: self.stored.update(self.read, words_of))
        if query.scope is None or query.scope.as_of is None:
            search = partial(self._holding_first, search)
        if not self.stored.by_tenant:
            return (yield from search(query))
        rankings = self.stored.of(query.scope)
        if any(scoped.phrases for scoped in rankings):
            words = self.correcting.tokenizer.query_tokens(query.query_str)
            synonyms = [word for scoped in rankings for word in scoped.synonyms(words)]
            query = query.unchecked(synonyms=tuple(dict.fromkeys(synonyms)))
        if not any(r.ranking.boosts or r.ranking.pins or r.ranking.blocks for r in rankings):
            return (yield from search(query))
        return (yield from step("ranking rules", self._ranked(query, search, rankings)))

    def interpretation(
        self, question: str, scope: Scope | None, today: date | None, llm: AnyLLM | None
    ) -> Plan[Interpretation]:
        """Return the plan for a question as a query and filters, typing errors corrected."""
        corrected = yield from self.correcting.corrected(Query(question, scope=scope))
        spellings = list(dict.fromkeys([corrected.query_str, question]))
        return (yield from self.interpreting.interpretation(spellings, scope, today, llm))

    def _holding_first(
        self, search: Callable[[Query], Plan[list[Hit]]], query: Query
    ) -> Plan[list[Hit]]:
        """Return the plan for hits of which those that hold now come first; see `holding_first`."""

        def narrowed() -> Query:
            return query.unchecked(cutoff=None, kept=None).but(as_of="now")

        def holds_now(hit: Hit) -> bool:
            return holds(hit.node.metadata, now_ns)

        now_ns = time.time_ns()
        query = query.unchecked(kept={})
        hits = yield from search(query)
        if all(map(_ENDS.isdisjoint, map(attrgetter("node.metadata"), hits))):  # few have dates
            return hits
        hits, holding = yield from with_holding(search, query, hits, holds_now, narrowed=narrowed)
        return hits if hits is holding else holding_first(hits, holding, top_k=query.top_k)

    def _ranked(
        self,
        query: Query,
        search: Callable[[Query], Plan[list[Hit]]],
        rankings: Sequence[ScopedRanking],
    ) -> Plan[list[Hit]]:
        boosts = [(scoped.condition, b) for scoped in rankings for b in scoped.ranking.boosts]
        top_k, unblocked = query.top_k, query
        for scoped in rankings:
            if scoped.excluded is not None:
                unblocked = unblocked.but(filters=scoped.excluded)
        words = self.correcting.tokenizer.query_tokens(query.query_str)
        pins = [
            (pin, scoped.condition)
            for scoped in reversed(rankings)  # the narrowest scope first
            for pin in scoped.pinned(words)
        ]
        weight = sum(abs(boost.weight) for _, boost in boosts)
        least = _CANDIDATES if weight > _LITTLE else _FEW_CANDIDATES
        # A hit that is pinned further below, or blocked, makes room for the next.
        count = top_k and max(top_k + len(pins), least if boosts else 0)
        room = min(_MOST_BLOCKED, sum(len(scoped.blocked) for scoped in rankings))
        shallow = unblocked
        if boosts and top_k:
            largest = partial(self.correcting.words.largest, query.scope)
            share = least_share([boost for _, boost in boosts], largest)
            shallow = unblocked.unchecked(cutoff=(top_k + len(pins) + room, share))

        def is_blocked(node: BaseNode) -> bool:
            return any(scoped.blocks(node) for scoped in rankings)

        hits = yield from _enough(shallow, search, is_blocked, count, room)
        if boosts:
            hits = boosted(hits, boosts, top_k=None if pins else top_k)
        if pins:
            pinned = yield Call(lambda: [self._pinned(*pin, unblocked, hits) for pin in pins])
            hits = placed(
                hits,
                [
                    (pin.position, hit)
                    for (pin, _), hit in zip(pins, pinned, strict=True)
                    if hit is not None and not is_blocked(hit.node)
                ],
            )
        return hits[:top_k]

    def _pinned(
        self, pin: Pin, condition: Condition | None, query: Query, hits: Sequence[Hit]
    ) -> Hit | None:
        """Return the best hit of a pinned document; None if it is hidden.

        Beyond the hits it is the node with most words of the question, the first of several.
        """
        for hit in hits:
            if pin.document in names_of(hit.node) and matches(condition, hit.node.metadata):
                return hit
        nodes = [
            node
            for node in self.find(pin.document, query.scope)
            if matches(condition, node.metadata) and matches(query.condition, node.metadata)
        ]
        tokenizer, text_of = self.correcting.tokenizer, self.correcting.text_of
        terms = tokenizer.query_terms(query.query_str).keys()

        def place(node: BaseNode) -> tuple[int, int, str]:
            shared = terms & memoryview(tokenizer.term_ids(text_of(node))).cast("I")
            return -len(shared), getattr(node, "start_char_idx", None) or 0, node.node_id

        return Hit(node=min(nodes, key=place), score=None, source="pin") if nodes else None


def _enough(
    query: Query,
    search: Callable[[Query], Plan[list[Hit]]],
    is_blocked: Callable[[BaseNode], bool],
    count: int | None,
    room: int,
) -> Plan[list[Hit]]:
    """Return the plan for so many hits that are not blocked, if there are; for all for None.

    The cutoff of the query leaves room for so many blocked ones.
    """
    depth = count
    while True:
        hits = yield from search(replace(query, top_k=depth, at_least=depth))
        kept = [hit for hit in hits if not is_blocked(hit.node)] if room else hits
        if query.cutoff is not None and len(hits) - len(kept) > room:
            query = query.unchecked(cutoff=None)  # it left no room for so many
            continue
        if count is None or depth is None or len(kept) >= count or len(hits) < depth:
            return kept[:count]
        depth *= _GROWTH
