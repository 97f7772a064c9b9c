"""`Expand`: hits with the text around them, from their section or conversation."""

from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final, TypeAlias

from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.utils import get_tokenizer
from llama_index.core.vector_stores.types import BasePydanticVectorStore, FilterOperator

from llama_retrieval_ext.execution.context import note_degraded, note_merged
from llama_retrieval_ext.execution.legs import or_degraded
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.filter_syntax import as_metadata_filters
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, both, matches
from llama_retrieval_ext.parameters import Count
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, origin_of
from llama_retrieval_ext.scope import (
    DOCUMENT_FIELD,
    KB_KEY,
    PATH_KEY,
    SESSION_KEY,
    SPEAKER_KEY,
    START_FIELD,
    TABLE_KEY,
    TENANT_KEY,
    TIME_KEY,
    TURN_KEY,
    allowed_in,
    document_of,
)

# Bounds of what is read for a hit, and of the white space between two passages, in characters.
_PER_TOKEN: Final = 6
_WIDEST: Final = 200
# Hits whose neighbours are read by one filter, which engines limit.
_AT_ONCE: Final = 50
# What the passages of one section, or the messages of one session, have in common.
Place: TypeAlias = tuple[object, ...]
Names: TypeAlias = tuple[str, ...]
Sections: TypeAlias = dict[Place, dict[str, TextNode]]


@dataclass(frozen=True, slots=True, repr=False)
class Expand(Refine):
    """Refinement that shows each hit with the passages around it in its section.

    A passage of a knowledge base is joined with those before and after it under the same headings,
    a message with those of its session, as long as they fit into ``tokens`` as a whole. The best
    hit comes first: no passage is shown twice, and a hit that a better one shows is merged into it.
    Order, scores and explanations are unchanged; ``start`` and ``end`` are those of the joint text.
    White space between two passages, which is not stored, becomes as many line breaks.

    In a prompt of limited size a longer hit leaves less room for the next ones. So it helps where
    passages are much smaller than ``tokens``; those of 512 tokens mostly stay as they are with 600.

    Neighbours are of the same document in the same scope, visible to all whom the hit names, and
    satisfy the filters of the query. They are read by one request; if that fails or is late, the
    hits stay as they are, and the answer is marked degraded. So does a hit whose position is
    unknown.

    Args:
        tokens: Maximum number of tokens of an expanded hit, by LlamaIndex's tokenizer; a longer hit
            stays as it is.
        store: The store of hits that do not come from a retriever over a store.

    Raises:
        ConfigurationError: ``tokens`` is below 1, or ``store`` is no vector store.

    Examples:
        >>> Expand(tokens=600)
        Expand(tokens=600)

    """

    tokens: Count = 1000
    _: KW_ONLY
    store: BasePydanticVectorStore | None = None

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        """Return the plan for the expanded hits."""
        sections = yield from or_degraded("Expand", self._sections(query, hits), {})
        return (yield Call(lambda: self._expanded(hits, sections))) if sections else list(hits)

    def _sections(self, query: Query, hits: Sequence[Hit]) -> Plan[Sections]:
        """Return the plan for the passages around the hits, under the condition of the query."""
        stores: dict[int, tuple[BasePydanticVectorStore, list[Hit]]] = {}
        for hit in hits:
            store = self._store_of(hit)
            knows = getattr(store, "stores_positions", False) and _place(store, hit.node)
            if store is not None and knows:
                stores.setdefault(id(store), (store, []))[1].append(hit)
        unknown = len(hits) - sum(len(same_store) for _, same_store in stores.values())
        if unknown:
            note_degraded("Expand", f"{unknown} of {len(hits)} hits have no known position")
        reads = [
            (store, window)
            for store, same_store in stores.values()
            for window in self._windows(same_store)
        ]
        # Tasks end before the query, which leaves time to return the hits without them.
        outcomes: list[Outcome[list[TextNode]]] = yield Together(
            [Task("neighbours", _read(store, window, query.condition)) for store, window in reads]
        )
        sections: Sections = {}
        for (store, _), outcome in zip(reads, outcomes, strict=True):
            for node in outcome.result():
                sections.setdefault(_place(store, node) or (), {})[node.node_id] = node
        return sections

    def _store_of(self, hit: Hit) -> BasePydanticVectorStore | None:
        origin = origin_of(hit)
        return self.store if origin is None else origin.store

    def _windows(self, hits: Sequence[Hit]) -> Iterator[list[Condition]]:
        """Yield conditions that the passages around each hit satisfy, as many as one filter has."""
        distinct: dict[Condition, None] = {}
        for hit in hits:
            room = self.tokens - _count(hit.node.get_content())
            distinct[_window(hit.node, max(0, room) * _PER_TOKEN)] = None
        windows = list(distinct)
        for start in range(0, len(windows), _AT_ONCE):
            yield windows[start : start + _AT_ONCE]

    def _expanded(self, hits: Sequence[Hit], sections: Sections) -> list[Hit]:
        hits_by_place: dict[tuple[Place, Names], list[Hit]] = {}
        for hit in hits:
            place = _place(self._store_of(hit), hit.node)
            if place in sections and isinstance(hit.node, TextNode):
                names = allowed_in(hit.node.metadata)
                hits_by_place.setdefault((place, names), []).append(hit)
        shown: dict[str, Hit] = {}
        merged: dict[str, str] = {}
        for (place, names), neighbours in hits_by_place.items():
            passages: dict[str, TextNode] = {}
            for id_, node in sections[place].items():
                allowed = allowed_in(node.metadata)
                # All who may see the hit may see the passage.
                if {*names} <= {*allowed} and bool(names) == bool(allowed):
                    passages[id_] = node
            passages |= {
                hit.node_id: hit.node for hit in neighbours if isinstance(hit.node, TextNode)
            }
            section = sorted(passages.values(), key=_order)
            numbers = {node.node_id: number for number, node in enumerate(section)}
            taken: dict[int, str] = {}  # the hit that shows a passage
            for hit in neighbours:
                number = numbers[hit.node_id]
                if number in taken:
                    merged[hit.node_id] = taken[number]
                    continue
                run = self._grown(section, number, taken)
                taken |= dict.fromkeys(run, hit.node_id)
                shown[hit.node_id] = _shown(hit, section[run.start : run.stop])
        note_merged(merged)
        return [shown.get(hit.node_id, hit) for hit in hits if hit.node_id not in merged]

    def _grown(self, section: Sequence[TextNode], number: int, taken: Container[int]) -> range:
        """Return the run around a passage: the next one, the previous one, and so on in turn.

        A side ends at the first passage that is taken, does not fit or does not follow.
        """
        first = last = number
        size, steps = _size(section[number]), deque((1, -1))
        while steps:
            step = steps.popleft()
            near = last + 1 if step > 0 else first - 1
            if near in taken or not 0 <= near < len(section):
                continue
            earlier, later = (last, near) if step > 0 else (near, first)
            added = _size(section[near])
            if size + added <= self.tokens and _follows(section[earlier], section[later]):
                first, last, size = min(first, near), max(last, near), size + added
                steps.append(step)
        return range(first, last + 1)


def _count(text: str) -> int:
    return len(get_tokenizer()(text))


def _size(node: TextNode) -> int:
    return _count(f"\n{speaker_of(node)}{node.text}")


def _place(store: BasePydanticVectorStore | None, node: BaseNode) -> Place | None:
    """Return the section of a passage or the session of a message; None if it is unknown."""
    metadata, document = node.metadata, document_of(node)
    if not isinstance(node, TextNode):
        return None
    if _is_message(metadata):
        scope = (metadata.get(key) for key in (TENANT_KEY, KB_KEY, SESSION_KEY))
        return (id(store), *scope)
    if document is None or node.start_char_idx is None or node.end_char_idx is None:
        return None
    return (id(store), *document, str(metadata.get(PATH_KEY)))


def _is_message(metadata: Mapping[str, object]) -> bool:
    return TURN_KEY in metadata and isinstance(metadata.get(SESSION_KEY), str)


def _order(node: TextNode) -> tuple[float, ...]:
    return (node.start_char_idx or 0, *(node.metadata.get(key, 0) for key in (TIME_KEY, TURN_KEY)))


def _window(node: BaseNode, reach: int) -> Condition:
    """Return the condition of the passages at most so many characters away, or of a session."""
    metadata = node.metadata
    equal = {key: metadata.get(key) for key in (TENANT_KEY, KB_KEY)}
    is_message = _is_message(metadata)
    if is_message:
        equal[SESSION_KEY] = metadata.get(SESSION_KEY)
    else:
        equal[DOCUMENT_FIELD] = node.ref_doc_id
    parts = [Compare(key, FilterOperator.EQ, value) for key, value in equal.items() if value]
    if not is_message and isinstance(node, TextNode):
        first, last = (node.start_char_idx or 0) - reach, (node.end_char_idx or 0) + reach
        parts += [
            Compare(START_FIELD, FilterOperator.GTE, first),
            Compare(START_FIELD, FilterOperator.LTE, last),
        ]
    return AllOf(tuple(parts))


def _read(
    store: BasePydanticVectorStore, windows: Sequence[Condition], condition: Condition | None
) -> Plan[list[TextNode]]:
    """Return the plan for the passages in some windows that satisfy a condition."""
    where = both(condition, AnyOf(tuple(windows)))
    filters = None if where is None else as_metadata_filters(where)
    nodes: list[BaseNode] = yield Call(
        lambda: store.get_nodes(None, filters), lambda: store.aget_nodes(None, filters)
    )
    # Checked again in plain Python, because engines have bugs.
    return [
        node for node in nodes if isinstance(node, TextNode) and matches(condition, node.metadata)
    ]


def _follows(first: TextNode, second: TextNode) -> bool:
    """Return whether a passage follows another without a gap, or repeats the end of it."""
    if first.start_char_idx is None or second.start_char_idx is None:
        return True
    gap = second.start_char_idx - (first.end_char_idx or 0)
    if gap < 0:
        repeated = min(-gap, len(second.text))
        at = second.start_char_idx - first.start_char_idx
        return first.text[at : at + repeated] == second.text[:repeated]
    is_next = first.next_node is not None and first.next_node.node_id == second.node_id
    return is_next and gap <= _WIDEST


def speaker_of(node: TextNode) -> str:
    """Return the beginning of a message's line; empty for other passages."""
    speaker = node.metadata.get(SPEAKER_KEY)
    return f"{speaker}: " if speaker and SESSION_KEY in node.metadata else ""


def _shown(hit: Hit, passages: Sequence[TextNode]) -> Hit:
    """Return the hit with the text of passages that follow each other."""
    if len(passages) == 1:
        return hit
    first, *others = passages
    text, end = speaker_of(first) + first.text, first.end_char_idx
    for node in others:
        line = f"\n{speaker_of(node)}"
        gap = len(line) if end is None else (node.start_char_idx or 0) - end
        between = line if gap == len(line) else "\n" * gap
        text += between + node.text[max(0, -gap) :]
        end = None if end is None else max(end, node.end_char_idx or 0)
    start = first.start_char_idx
    # The table is that in which the first passage begins.
    metadata = {key: value for key, value in hit.node.metadata.items() if key != TABLE_KEY}
    if TABLE_KEY in first.metadata:
        metadata[TABLE_KEY] = first.metadata[TABLE_KEY]
    update = {
        "text": text,
        "start_char_idx": None if start is None else start - len(speaker_of(first)),
        "end_char_idx": end,
        "metadata": metadata,
        "embedding": None,
    }
    return hit.model_copy(update={"node": hit.node.model_copy(update=update)})
