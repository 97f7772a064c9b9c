"""The stage that dropped a node, determined from the trace that `explain` records."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.arguments import NamedEnum
from llama_retrieval_ext.errors import ConfigurationError, StoreError
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.filter_syntax import describe_unmet
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.hits import document_title
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.trace import Trace
from llama_retrieval_ext.wording import counted, quoted


class WhyNotReason(NamedEnum):
    """Reason why a node is not in a result.

    Attributes:
        RETURNED: The node is in the result.
        MERGED: A stage replaced it by another node: a duplicate, its source, or its parent.
        CUT: A stage received it and left it out.
        FILTERED: The node does not satisfy the filters of the query.
        NOT_FOUND: No leg found it.
        UNKNOWN: No leg found it, and the stores that can read nodes have no such node in the
            query's scope.
    """

    RETURNED = "returned"
    MERGED = "merged"
    CUT = "cut"
    FILTERED = "filtered"
    NOT_FOUND = "not_found"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Depth:
    """Search depth of a leg.

    Attributes:
        leg: Name of the leg.
        count: Number of hits.
        last_score: The score of the last hit; None if it has none.
    """

    leg: str
    count: int
    last_score: float | None

    def __str__(self) -> str:
        if not self.count:
            return f"{self.leg} found nothing"
        last = "" if self.last_score is None else f"; the lowest scored {self.last_score:.4g}"
        return f"{self.leg} returned {counted(self.count, 'hit')}{last}"


@dataclass(frozen=True, slots=True)
class FieldWords:
    """The words of a question in the searched fields of a node.

    Attributes:
        fields: Name, weight and words of each field that has some, the heaviest first.
        missing: Words of the question that no searched field has.
    """

    fields: tuple[tuple[str, float, tuple[str, ...]], ...] = ()
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = [
            f"{name} (weight {weight:g}) has {', '.join(map(quoted, words))}"
            for name, weight, words in self.fields
        ]
        if self.missing:
            shown.append(f"no field has {', '.join(map(quoted, self.missing))}")
        return "; ".join(shown)


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Explanation why a node is not in a result; prints as a sentence.

    Attributes:
        node_id: Id of the node.
        reason: The kind of reason.
        stage: The stage that left it out; empty if it was not found.
        rank: Rank before that stage, from 1; rank in the result if it was returned.
        kept: Number of hits that the stage kept.
        into: The id of the node that replaced it.
        title: Title of its document, as in a result; empty if that is the id, or is not known.
        into_title: Likewise of the node that replaced it.
        unmet: The filters that the node does not satisfy.
        depths: Search depth of each leg that did not find it.
        words: What of the question its searched fields have, if it was left out or not found.
    """

    node_id: str
    reason: WhyNotReason
    stage: str = ""
    rank: int | None = None
    kept: int | None = None
    into: str | None = None
    title: str = field(default="", compare=False)
    into_title: str = field(default="", compare=False)
    unmet: tuple[str, ...] = ()
    depths: tuple[Depth, ...] = ()
    words: FieldWords = field(default_factory=FieldWords, compare=False)

    def to_dict(self) -> dict[str, object]:
        """Return the explanation as JSON, with the sentence as ``text``."""
        values = {
            "reason": self.reason.value,
            "unmet": list(self.unmet),
            "depths": [asdict(depth) for depth in self.depths],
        }
        return {**asdict(self), **values, "text": str(self)}

    def __str__(self) -> str:
        words = f"; of the question, {self.words}" if self.words != FieldWords() else ""
        named = _named(self.node_id, self.title)
        return f"{named} {self._sentence()}{self._depths()}{words}"

    def _sentence(self) -> str:
        kept = f"which kept {self.kept}: rank {self.rank} before"
        return {
            WhyNotReason.RETURNED: f"was returned, with rank {self.rank}",
            WhyNotReason.MERGED: f"was left out by {self.stage} for "
            f"{_named(self.into, self.into_title)}",
            WhyNotReason.CUT: f"was left out by {self.stage}, {kept}",
            WhyNotReason.FILTERED: f"does not satisfy the filters: {'; '.join(self.unmet)}",
            WhyNotReason.NOT_FOUND: "was not found by any leg",
            WhyNotReason.UNKNOWN: "was not found, and no store that was searched and can be asked "
            "has a node of this id in the query's scope; a document is not a node: see hit.node_id",
        }[self.reason]

    def _depths(self) -> str:
        if not self.depths or self.reason in (WhyNotReason.FILTERED, WhyNotReason.UNKNOWN):
            return ""
        if self.reason is WhyNotReason.NOT_FOUND:
            return f": {'; '.join(map(str, self.depths))}"
        return f"; not found by: {'; '.join(map(str, self.depths))}"


def _named(node_id: str | None, title: str) -> str:
    return f"{node_id!r} ({title})" if title else repr(node_id)


class ReadsNodes(Protocol):
    """Retriever that can read its nodes by id."""

    def read_node(self, node_id: str) -> Plan[BaseNode | None]:
        """Return a plan for a stored node; None if it does not exist."""
        ...

    def field_words(self, query: Query, node: BaseNode) -> FieldWords:
        """Return the words of a question in the searched fields of a node."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TracedRequest:
    """A retriever with its query; neither is copied or pickled.

    Attributes:
        retriever: The retriever.
        query: The query, bound to the retriever.
    """

    retriever: ReadsNodes
    query: Query

    def __deepcopy__(self, memo: object) -> "TracedRequest":
        return self

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return (type(None), ())


def why_not(trace: Trace, node_id: str) -> Plan[WhyNot]:
    """Return a plan that finds where a node was dropped; it reads the node only if not found.

    A node outside the scope of the query is reported like one that does not exist.
    """
    answer = yield from _found_out(trace, node_id)
    if answer.reason is WhyNotReason.UNKNOWN:
        return answer
    title, words = yield from _described(trace, node_id)
    if answer.into is not None:
        into_title, _ = yield from _described(trace, answer.into)
        return replace(answer, title=title, into_title=into_title)
    shows_words = answer.reason in (WhyNotReason.CUT, WhyNotReason.NOT_FOUND)
    return replace(answer, title=title, words=words if shows_words else FieldWords())


def _described(trace: Trace, node_id: str) -> Plan[tuple[str, FieldWords]]:
    """Return the title of a node's document, and the words of the question in its fields.

    The title is empty if it is the id, or cannot be read now.
    """
    for request in requests_in(trace):
        try:
            node = yield from _read(request, node_id)
        except StoreError:
            continue
        if node is not None and _in_scope(node, request.query):
            title = document_title(Hit(node=node))
            words = request.retriever.field_words(request.query, node)
            return "" if title == node_id else title, words
    return "", FieldWords()


def _found_out(trace: Trace, node_id: str) -> Plan[WhyNot]:
    """Return the reason for a node, without titles."""
    rank = rank_in(trace, node_id)
    if rank is not None:
        return WhyNot(node_id, WhyNotReason.RETURNED, trace.name, rank)
    depths = tuple(_depths(trace, node_id))
    lost = _loss(trace, node_id)
    stage, before = (trace, None) if lost is None else lost
    into = _merged_into(stage, node_id)
    if lost is None and into is None:
        return (yield from _never_found(trace, node_id, depths))
    reason = WhyNotReason.CUT if into is None else WhyNotReason.MERGED
    kept = len(stage.ranking or ())
    return WhyNot(node_id, reason, stage.name, before, kept, into, depths=depths)


def rank_in(trace: Trace, node_id: str) -> int | None:
    """Return the rank of a node in the ranking of a step, from 1; None if absent."""
    ids = [id_ for id_, _ in trace.ranking or ()]
    return ids.index(node_id) + 1 if node_id in ids else None


def ranked_children(trace: Trace) -> list[Trace]:
    """Return the direct nested steps that returned hits."""
    return [child for child in trace.children if child.ranking is not None]


def _loss(trace: Trace, node_id: str) -> tuple[Trace, int] | None:
    """Return the step that dropped a node, and its earlier rank; None if no nested step had it."""
    inside = ranked_children(trace)
    ranks = [rank_in(child, node_id) for child in inside]
    had = [index for index, rank in enumerate(ranks) if rank is not None]
    if not had:
        below = (_loss(child, node_id) for child in reversed(inside))
        lost = next((lost for lost in below if lost is not None), None)
        if lost is not None and len(inside) == 1 and lost[0].ranking == trace.ranking:
            return trace, lost[1]  # the outer name is the public one
        return lost
    last = had[-1]
    follows = [] if inside[last].beside else inside[last + 1 :]
    if not follows:
        return trace, min(rank for rank in ranks if rank is not None)
    return _loss(follows[0], node_id) or (follows[0], ranks[last] or 0)


def _merged_into(stage: Trace, node_id: str) -> str | None:
    for _, step in stage.walk():
        merged = step.notes.get("merged")
        if isinstance(merged, dict) and node_id in merged:
            return str(merged[node_id])
    return None


def _depths(trace: Trace, node_id: str, leg: str = "") -> Iterator[Depth]:
    """Yield the depth of the innermost legs, or the single search, that did not find a node."""
    inside = ranked_children(trace)
    beside = [child for child in inside if child.beside]
    if beside:
        for child in beside:
            yield from _depths(child, node_id, child.name)
    elif len(inside) > 1 or any(map(ranked_children, inside)):
        yield from _depths(inside[0], node_id, leg)  # the others refine this one's hits
    else:
        ranking = (inside[0] if inside else trace).ranking or ()
        if node_id not in dict(ranking):
            yield Depth(leg or trace.name, len(ranking), ranking[-1][1] if ranking else None)


def _never_found(trace: Trace, node_id: str, depths: Sequence[Depth]) -> Plan[WhyNot]:
    unmet: tuple[str, ...] = ()
    reason = WhyNotReason.UNKNOWN
    for request in requests_in(trace):
        node = yield from _read(request, node_id)
        if node is None or not _in_scope(node, request.query):
            continue
        unmet = tuple(describe_unmet(request.query.condition, node.metadata))
        if not unmet:
            return WhyNot(node_id, WhyNotReason.NOT_FOUND, depths=tuple(depths))
        reason = WhyNotReason.FILTERED
    return WhyNot(node_id, reason, unmet=unmet, depths=tuple(depths))


def requests_in(trace: Trace) -> list[TracedRequest]:
    """Return the retrievers that ran in a step with their queries, outer before inner."""
    requests = (request for _, step in trace.walk() for request in step.requests)
    return [request for request in requests if isinstance(request, TracedRequest)]


def _read(request: TracedRequest, node_id: str) -> Plan[BaseNode | None]:
    try:
        return (yield from request.retriever.read_node(node_id))
    except ConfigurationError:  # a store that cannot read nodes by their ids
        return None


def _in_scope(node: BaseNode, query: Query) -> bool:
    return query.scope is None or matches(query.scope.condition, node.metadata)
