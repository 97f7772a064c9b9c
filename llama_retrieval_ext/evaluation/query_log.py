"""`QueryLog`: what people ask a knowledge base, what they click, and what can be learned of it."""

import json
import secrets
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Self

from llama_retrieval_ext.checks import check_seconds, checked_methods, of_type
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError, StoreUnavailableError
from llama_retrieval_ext.evaluation.experiment import frame_of
from llama_retrieval_ext.evaluation.judgements import CLICKS, Judgements
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, SearchResult, correction_in, document_id
from llama_retrieval_ext.scope import Scope, check_principals, check_scope
from llama_retrieval_ext.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pandas import DataFrame

_DAY_S: Final = 86_400.0
_SCHEMA: Final = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON;
CREATE TABLE IF NOT EXISTS events (at REAL NOT NULL, query_id TEXT NOT NULL, line TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_query ON events (query_id);
CREATE INDEX IF NOT EXISTS by_time ON events (at);
"""
# Questions are alike from this share of common words on.
_ALIKE: Final = 0.5
# Groups that a question is compared with, for each of its words: grouping takes linear time.
_MOST_GROUPS: Final = 20
_BEST_GRADE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedQuery:
    """A query in a log, with what people did with its hits.

    Attributes:
        query_id: Its id, also in ``details`` of the result.
        at: Time in seconds since 1970.
        question: Its text; empty if texts are left out.
        filters: Filters of the caller, as JSON.
        scope: Its scope.
        hits: Node id and document id of each hit, best first.
        degraded: Names of the parts that failed.
        hints: As in the result.
        corrected: Whether typing errors were corrected.
        ms: Duration in milliseconds.
        clicks: Ranks of the clicked hits, from 1.
        good: Whether the answer was good; None if nobody told.
    """

    query_id: str
    at: float
    question: str
    filters: Mapping[str, object] | None
    scope: Scope | None
    hits: Sequence[tuple[str, str]]
    degraded: Sequence[str]
    hints: Sequence[str]
    corrected: bool
    ms: float
    clicks: frozenset[int] = frozenset()
    good: bool | None = None


@checked_methods
class QueryLog:
    """A log of queries, clicks and marks, in SQLite: ``kb.log = QueryLog("queries.db")``.

    It records the queries of a knowledge base by scope, whichever entrance they come by, but not
    those of an `Experiment`. A query whose row cannot be written is answered, and marked degraded.
    Several processes may share a file.

    A scope sees the rows that it could have asked: those of its tenant and of its knowledge bases,
    and, if it has principals, of queries with no others. A log of a knowledge base that requires a
    scope, or principals, requires them, too.

    Args:
        path: The file, or ``sqlite:PATH``; ``:memory:`` for none.
        keep_days: Days after which a row is deleted; None to keep all.
        texts: Whether to record what people wrote: questions, filters, and hints, which quote them.
            Without, there are no judgements.

    Raises:
        StoreUnavailableError: The file cannot be opened.

    Examples:
        >>> from llama_index.core import Document, MockEmbedding
        >>> from llama_retrieval_ext import KnowledgeBase
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     _ = kb.add([Document(text="25 days of leave", id_="leave")], show_progress=False)
        ...     log = kb.log = QueryLog(":memory:", keep_days=90)
        ...     result = kb.search("days of leave", "keyword")
        ...     log.clicked(result, result[0])
        >>> log.judgements()
        Judgements(1 question, 1 relevant document, clicks)

    """

    def __init__(
        self, path: str | Path, *, keep_days: float | None = None, texts: bool = True
    ) -> None:
        self.path = str(path).removeprefix("sqlite:")
        self.keep_days = None if keep_days is None else check_seconds(keep_days, "keep_days")
        self.texts = of_type(texts, bool, "texts")
        self._lock = RLock()
        self._due = 0.0  # the time of the next removal of old rows
        try:
            self._rows = sqlite3.connect(self.path, timeout=60, check_same_thread=False)
            self._rows.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise StoreUnavailableError(f"the log {self.path} cannot be opened: {error}") from error

    def __repr__(self) -> str:
        return f"QueryLog({self.path!r})"

    @classmethod
    def from_lines(cls, lines: Iterable[str]) -> Self:
        """Return a log in memory with JSON lines, as of `lines`, from any iterator.

        Args:
            lines: Each the record of a query, a click or a mark.

        Raises:
            ConfigurationError: A line is no such record.
        """
        log = cls(":memory:")
        for number, line in enumerate(lines, start=1):
            try:
                event = json.loads(line)
                at, query_id = float(event["at"]), str(event["query_id"])
                _ = "hits" in event and _logged(event)
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigurationError(
                    f"line {number} is no record of a query log, a JSON object with at and "
                    f"query_id: {line[:80]!r}"
                ) from error
            log._write(at, query_id, event)
        return log

    def lines(self, *, scope: Scope | None = None) -> Iterator[str]:
        """Yield the records that a scope sees as JSON lines, the oldest first."""
        visible = {query.query_id for query in self.queries(scope=scope)}
        return (line for query_id, line in self._read() if query_id in visible)

    def require(self, *, scope: bool, principals: bool) -> None:
        """Require a scope, or principals, for reading from now on; the file records it."""
        with self._lock, self._rows:
            (flags,) = self._rows.execute("PRAGMA user_version").fetchone()
            self._rows.execute(f"PRAGMA user_version = {flags | scope | principals << 1}")

    def record(
        self,
        query: Query,
        hits: Sequence[Hit],
        *,
        ms: float,
        degraded: Sequence[str],
        hints: Sequence[str],
    ) -> str:
        """Write the row of a query, and return its id; a knowledge base calls it.

        Raises:
            StoreUnavailableError: It cannot be written.
        """
        query_id, scope = secrets.token_hex(8), query.scope
        filters = query.filters if self.texts else None
        event = {
            "question": query.query_str if self.texts else "",
            "filters": filters and filters.model_dump(mode="json"),
            "scope": scope and [scope.tenant_id, scope.kb_ids, scope.principals],
            "hits": [(hit.node_id, document_id(hit.node) or hit.node_id) for hit in hits],
            "degraded": [*degraded],
            "hints": [*map(str, hints)] if self.texts else [],
            "corrected": correction_in(hints) is not None,
            "ms": round(ms, 2),
        }
        self._write(time.time(), query_id, event)
        return query_id

    def clicked(
        self, result: SearchResult | str, hit: Hit | str, *, scope: Scope | None = None
    ) -> None:
        """Record that somebody opened a hit.

        Args:
            result: The result; or its ``details["query_id"]``, which HTTP returns as ``query_id``.
            hit: One of its hits, or its node id, or for the best of a document the document's id.
            scope: Only a query that it sees, as for `queries`; None for any.

        Raises:
            ConfigurationError: The log has no such query, or it did not have this hit.
        """
        query_id = self._id_of(result)
        id_ = hit.node_id if isinstance(hit, Hit) else hit
        event = self._event(query_id, scope)
        ranks = [rank for rank, ids in enumerate(event["hits"], start=1) if id_ in ids]
        if not ranks:
            raise ConfigurationError(f"query {query_id!r} did not have the hit {id_!r}")
        self._write(time.time(), query_id, {"rank": ranks[0]})

    def answered(
        self, result: SearchResult | str, *, good: bool, scope: Scope | None = None
    ) -> None:
        """Record whether what was made of a result was good; the last mark counts.

        Args:
            result: As for `clicked`.
            good: Whether it was.
            scope: As for `clicked`.

        Raises:
            ConfigurationError: The log has no such query.
        """
        query_id = self._id_of(result)
        self._event(query_id, scope)
        self._write(time.time(), query_id, {"good": of_type(good, bool, "good")})

    def queries(self, *, scope: Scope | None = None) -> list[LoggedQuery]:
        """Return the queries that a scope sees, the oldest first.

        Raises:
            ScopeRequiredError: A knowledge base of the log requires a scope.
        """
        self._check(scope)
        queries: dict[str, LoggedQuery] = {}
        for query_id, line in self._read():
            event = json.loads(line)
            logged = queries.get(query_id)
            if "hits" in event:
                queries[query_id] = _logged(event)
            elif logged is not None and "rank" in event:
                queries[query_id] = replace(logged, clicks=logged.clicks | {event["rank"]})
            elif logged is not None:
                queries[query_id] = replace(logged, good=event["good"])
        return [logged for logged in queries.values() if _sees(scope, logged.scope)]

    def delete(self, *, scope: Scope) -> int:
        """Delete the rows of a tenant, of a knowledge base, or of a user, and return their number.

        Args:
            scope: All of these that it names; of principals those rows that have all of them, so
                ``Scope(principals=["user:ann"])`` is a user.
        """
        check_scope(scope)
        named = set(scope.principals or ())
        within = scope.for_everyone
        gone = [
            query_id
            for query_id, line in self._read()
            if "hits" in (event := json.loads(line))
            and _sees(within, (of := _logged(event).scope))
            and (not named or (of is not None and named.issubset(of.principals or ())))
        ]
        with self._lock, self._rows:
            self._rows.executemany(
                "DELETE FROM events WHERE query_id = ?", [(id_,) for id_ in gone]
            )
        return len(gone)

    def report(self, *, scope: Scope | None = None, slow_ms: float = 1000.0) -> "DataFrame":
        """Return what went wrong: one row for each problem and group of similar questions.

        ``problem`` is ``no hits``, ``no clicks`` (if the log has any), ``bad answer``, ``slow``,
        ``degraded`` or ``corrected``; ``question`` the most frequent text, ``forms`` the number of
        texts, ``searches`` those with the problem, ``of`` all of the group, ``last`` the day.

        Args:
            scope: Whose rows; as for `queries`.
            slow_ms: Milliseconds from which on a query is slow.

        Raises:
            ScopeRequiredError: As for `queries`.
        """
        queries = self.queries(scope=scope)
        has_clicks = any(query.clicks for query in queries)
        rows: list[dict[str, Any]] = []  # Any: columns of a table
        problems: dict[str, Callable[[LoggedQuery], object]] = {
            "no hits": lambda query: not query.hits,
            "no clicks": lambda query: has_clicks and query.hits and not query.clicks,
            "bad answer": lambda query: query.good is False,
            "slow": lambda query: query.ms >= slow_ms,
            "degraded": lambda query: query.degraded,
            "corrected": lambda query: query.corrected,
        }
        for group in _groups(queries):
            for problem, has_problem in problems.items():
                if concerned := [query for query in group if has_problem(query)]:
                    rows.append(
                        {
                            "problem": problem,
                            "question": _most_frequent(concerned),
                            "forms": len({query.question for query in concerned}),
                            "searches": len(concerned),
                            "of": len(group),
                            "last": datetime.fromtimestamp(
                                max(query.at for query in concerned), UTC
                            ).date(),
                        }
                    )
        rows.sort(key=lambda row: (row["problem"], -row["searches"]))
        return frame_of(rows)

    def judgements(self, *, scope: Scope | None = None) -> Judgements:
        r"""Return which documents were clicked more than their ranks explain.

        People click what stands first. A document of a group of similar questions with clicks
        :math:`c` at ranks :math:`r_1, \dots, r_n` has

        .. math:: \mathrm{COEC} = c \; / \; \sum_i \mathrm{CTR}(r_i)

        where CTR is the share of all queries of the log with a click at a rank. Its grade is that,
        rounded down, at most 3: 0, and so not relevant, if it was clicked less than its ranks
        explain. Clicks of queries whose answer was marked as bad do not count.

        Args:
            scope: Whose rows; as for `queries`.

        Raises:
            ConfigurationError: No document was clicked, or texts were left out.
            ScopeRequiredError: As for `queries`.

        Source:
            Clicks over expected clicks: Zhang and Jones, "Comparing Click Logs and Editorial Labels
            for Training Query Rewriting", Query Log Analysis workshop at WWW 2007, section 3.
        """
        queries = [query for query in self.queries(scope=scope) if query.question]
        shown = Counter(rank for query in queries for rank in range(1, len(query.hits) + 1))
        clicked = Counter(rank for query in queries for rank in query.clicks)
        relevant: dict[str, dict[str, int]] = {}
        for group in _groups(queries):
            clicks: Counter[str] = Counter()
            expected: defaultdict[str, float] = defaultdict(float)
            for query in group:
                for rank, (_, document) in enumerate(query.hits, start=1):
                    expected[document] += clicked[rank] / shown[rank]
                    clicks[document] += rank in query.clicks and query.good is not False
            question = _most_frequent(group)
            relevant[question] = {
                document: min(_BEST_GRADE, int(clicks[document] / usual)) if usual else 0
                for document, usual in expected.items()
            }
        return Judgements({text: text for text in relevant}, relevant, origin=CLICKS)

    def close(self) -> None:
        """Close the file; a second call is a no-op."""
        self._rows.close()

    def _check(self, scope: Scope | None) -> None:
        if scope is not None:
            check_scope(scope)
        with self._lock:
            (flags,) = self._rows.execute("PRAGMA user_version").fetchone()
        if flags & 1 and scope is None:
            raise ScopeRequiredError(f"{self!r} requires a scope to be read; pass scope=Scope(...)")
        if flags & 2:
            check_principals(scope, repr(self))

    def _read(self) -> list[tuple[str, str]]:
        """Return the query id and the JSON of each record that is not too old."""
        oldest = 0.0 if self.keep_days is None else time.time() - self.keep_days * _DAY_S
        order = "SELECT query_id, line FROM events WHERE at >= ? ORDER BY rowid"
        with self._lock, closing(self._rows.execute(order, [oldest])) as rows:
            return rows.fetchall()

    def _event(self, query_id: str, scope: Scope | None) -> dict[str, Any]:  # Any: JSON
        with self._lock:
            row = self._rows.execute(
                "SELECT line FROM events WHERE query_id = ? ORDER BY rowid", [query_id]
            ).fetchone()
        event: dict[str, Any] = {} if row is None else json.loads(row[0])
        # A query of another scope looks like one that is not there.
        if not event or not _sees(scope, _logged(event).scope):
            raise ConfigurationError(f"the log has no query {query_id!r}; it may be deleted")
        return event

    def _write(self, at: float, query_id: str, event: Mapping[str, object]) -> None:
        line = json.dumps({"at": at, "query_id": query_id, **event}, ensure_ascii=False)
        try:
            with self._lock, self._rows:
                self._rows.execute("INSERT INTO events VALUES (?, ?, ?)", (at, query_id, line))
                if self.keep_days is not None and time.time() >= self._due:
                    oldest = time.time() - self.keep_days * _DAY_S
                    self._rows.execute("DELETE FROM events WHERE at < ?", [oldest])
                    self._due = time.time() + _DAY_S / 24
        except sqlite3.Error as error:
            raise StoreUnavailableError(f"{self!r} cannot be written: {error}") from error

    def _id_of(self, result: SearchResult | str) -> str:
        id_ = result.details.get("query_id") if isinstance(result, SearchResult) else result
        if not isinstance(id_, str):
            raise ConfigurationError(
                "the result is in no log; set kb.log = QueryLog(...) before the search"
            )
        return id_


def _logged(event: Mapping[str, Any]) -> LoggedQuery:
    scope = (
        Scope(*event["scope"]) if any(part is not None for part in event["scope"] or ()) else None
    )
    hits = tuple((node_id, document) for node_id, document in event["hits"])
    return LoggedQuery(**{**event, "scope": scope, "hits": hits})


def _sees(reader: Scope | None, of: Scope | None) -> bool:
    """Return whether a scope sees the row of a query in another one."""
    if reader is None:
        return True
    if of is None or (reader.tenant_id is not None and of.tenant_id != reader.tenant_id):
        return False
    if reader.kb_ids and not (of.kb_ids and set(of.kb_ids) <= set(reader.kb_ids)):
        return False
    principals = reader.principals
    return principals is None or (of.principals is not None and {*of.principals} <= {*principals})


def _most_frequent(queries: Sequence[LoggedQuery]) -> str:
    return Counter(query.question for query in queries).most_common(1)[0][0]


def _groups(queries: Sequence[LoggedQuery]) -> list[list[LoggedQuery]]:
    """Return queries in groups of similar words, the most frequent question of each first."""
    tokens = Tokenizer().query_tokens
    groups: list[tuple[frozenset[str], list[LoggedQuery]]] = []
    by_word: defaultdict[str, list[int]] = defaultdict(list)
    by_text: defaultdict[str, list[LoggedQuery]] = defaultdict(list)
    for query in queries:
        by_text[query.question].append(query)
    for text, same in sorted(by_text.items(), key=lambda item: (-len(item[1]), item[0])):
        words = frozenset(tokens(text))
        near = {at for word in words for at in by_word[word][:_MOST_GROUPS]}
        alike = {at: len(words & groups[at][0]) / len(words | groups[at][0]) for at in near}
        best = max(alike, key=lambda at: (alike[at], -at), default=None)
        if best is not None and alike[best] >= _ALIKE:
            groups[best][1].extend(same)
            continue
        for word in words:
            by_word[word].append(len(groups))
        groups.append((words, same))
    return [group for _, group in groups]
