"""Pages of a search: cursors, which name the hits of a ranking that are to come, and sorting.

A later page searches again, which checks scope and filters again, and shows what the cursor names,
in its order: so a document that is deleted leaves a gap, and none comes twice.
"""

import hmac
import json
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final

from llama_retrieval_ext.errors import ConfigurationError, ScopeError
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.knowledge_base.columns import DATE, NUMBER, order
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, SearchResult
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.wording import quoted

# Hits of a ranking that pages show, unless the caller says how many.
DEPTH: Final = 1000
# Depth, number of hits shown, and the digests of scope, schema and question.
_HEAD: Final = struct.Struct(">II8s8s8s")
_MARK: Final = 4  # bytes that stand for a node: two of 1,000 are alike once in 10,000 rankings
_MAC: Final = 16
_END: Final = (
    "pages end here, after the best {:,} hits; narrow the search, or pass a greater depth="
)


@dataclass(frozen=True, slots=True)
class Paging:
    """The pages of one question.

    Attributes:
        key: The secret of the knowledge base, by which its cursors are signed.
        asked: The digests of scope, schema and question.
        most: Maximum number of hits that the engine returns; None for no limit.
        sort: Field to sort by, descending after ``-``; None for the score.
    """

    key: bytes
    asked: tuple[bytes, bytes, bytes]
    most: int | None
    sort: str | None

    @classmethod
    def of(
        cls,
        key: str,
        query: Query,
        schema: Schema,
        *how: object,
        most: int | None,
        sort: str | None,
    ) -> "Paging":
        """Return the pages of a query; ``how`` is what else its ranking depends on."""
        secret = key.encode()
        question: list[object] = [query.query_str, query.filter, query.fields, query.correct]
        question += [query.interpret, query.embedding, sort, *how]
        asked = (
            _digest(secret, repr(query.scope), 8),
            _digest(secret, json.dumps(schema.to_dict(), sort_keys=True), 8),
            _digest(secret, repr(question), 8),
        )
        return cls(secret, asked, most, sort)

    def page(
        self,
        ranked: Callable[[int], Plan[SearchResult]],
        top_k: int,
        *,
        cursor: str | None,
        depth: int | None,
    ) -> Plan[SearchResult]:
        """Return the plan for the first page, or the one at a cursor.

        Args:
            ranked: Returns the plan for the best hits, at most so many.
            top_k: Maximum number of hits of the page.
            cursor: The cursor of the page before; None for the first.
            depth: Hits of all pages; None for `DEPTH`, or the limit of the engine.
        """
        seen: list[bytes] = []
        left: list[bytes] | None = None
        if cursor is not None:
            depth, seen, left = self._read(cursor)
        elif depth is None and self.sort is None:  # nobody may ask for the next page
            result = yield from ranked(top_k)
            if len(result.hits) < top_k:
                return result
            return self._with_cursor(result, self._depth(None, top_k), result.hits, [])
        depth = self._depth(depth, top_k)
        result = yield from ranked(depth)
        marked = {self._mark(hit): hit for hit in self._sorted(result.hits)}
        if left is None:
            before = {*seen}
            left = [mark for mark in marked if mark not in before]
        elif len(result) >= depth and not marked.keys() >= {*left[:top_k]}:
            # What was added may have pushed them down.
            deeper = 2 * depth if self.most is None else min(2 * depth, self.most)
            marked = {self._mark(hit): hit for hit in (yield from ranked(deeper))}
        hits = [marked[mark] for mark in left[:top_k] if mark in marked]
        left, is_cut = left[top_k:], len(result) >= depth
        notes = [_END.format(depth)] if is_cut and not left else []
        field = (self.sort or "").removeprefix("-")
        if field and result.hits and not any(any(_places(hit, field)) for hit in result.hits):
            notes.insert(
                0, f"no hit has a number or a date as {quoted(field)}; the order is by score"
            )
        page = replace(result, hits=hits, hints=(*result.hints, *notes))
        return self._with_cursor(page, depth, [], left) if left else page

    def _with_cursor(
        self, result: SearchResult, depth: int, seen: Sequence[Hit], left: Sequence[bytes]
    ) -> SearchResult:
        """Return the result with the cursor of the next page: after these, or of these."""
        marks = b"".join([*map(self._mark, seen), *left])
        body = _HEAD.pack(depth, len(seen), *self.asked) + marks
        mac = _digest(self.key, body, _MAC)
        return replace(result, cursor=urlsafe_b64encode(mac + body).decode())

    def _read(self, cursor: str) -> tuple[int, list[bytes], list[bytes] | None]:
        """Return the depth, what was shown, and what is left, or raise."""
        try:
            data = urlsafe_b64decode(cursor.encode())
            mac, body = data[:_MAC], data[_MAC:]
            depth, n_seen, *asked = _HEAD.unpack_from(body)
        except (ValueError, struct.error):
            mac, body, asked, depth, n_seen = b"", b"", [], 0, 0
        if not hmac.compare_digest(mac, _digest(self.key, body, _MAC)):
            raise ConfigurationError(
                "the cursor is damaged, or of another knowledge base; search without it"
            )
        if asked[0] != self.asked[0]:
            raise ScopeError("the cursor is of another scope; search without it")
        for digest, expected, what in zip(
            asked[1:], self.asked[1:], ("schema", "question, or its options"), strict=True
        ):
            if digest != expected:
                raise ConfigurationError(
                    f"the cursor is of another {what}; ask the same, or search without the cursor"
                )
        marks = [body[at : at + _MARK] for at in range(_HEAD.size, len(body), _MARK)]
        return depth, marks[:n_seen], None if n_seen else marks

    def _depth(self, depth: int | None, top_k: int) -> int:
        """Return the depth; raise if the engine has a lower limit."""
        if depth is None:
            usual = max(DEPTH, 2 * top_k)
            return usual if self.most is None else min(usual, self.most)
        if self.most is not None and depth > self.most:
            raise ConfigurationError(
                f"depth is {depth:,}, and the engine returns at most {self.most:,} hits"
            )
        return depth

    def _sorted(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits by the field to sort by, equal ones by score; last those without it."""
        if self.sort is None:
            return [*hits]
        is_falling, field = self.sort.startswith("-"), self.sort.removeprefix("-")
        best = max if is_falling else min
        ranked = [(best(_places(hit, field), default=None), hit) for hit in hits]
        sorted_ = [(place, hit) for place, hit in ranked if place is not None]
        sorted_.sort(key=itemgetter(0), reverse=is_falling)
        return [hit for _, hit in sorted_] + [hit for place, hit in ranked if place is None]

    def _mark(self, hit: Hit) -> bytes:
        return _digest(self.key, hit.node.node_id, _MARK)


def _digest(key: bytes, value: str | bytes, size: int) -> bytes:
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return blake2b(data, key=key, digest_size=size).digest()


def _places(hit: Hit, field: str) -> list[tuple[Any, ...]]:
    """Return what the numbers and dates of a field are ordered by."""
    value = hit.node.metadata.get(field)
    items = value if isinstance(value, list | tuple) else [value]
    places = [order(item)[:2] for item in items if isinstance(item, str | int | float)]
    return [place for place in places if place[0] in {NUMBER, DATE}]
