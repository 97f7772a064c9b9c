"""Retriever that searches small chunks and replaces them by their parents."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Annotated, Literal, TypeAlias

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.schema import BaseNode, IndexNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.core.storage.storage_context import StorageContext

from llama_retrieval_ext.execution.context import call, note_degraded, note_merged, step
from llama_retrieval_ext.execution.legs import or_degraded
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.retrieval import hits_of
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.hits import node_ids, ordered, score_of
from llama_retrieval_ext.parameters import Range
from llama_retrieval_ext.pipeline.index_nodes import objects_by_id
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.tree import name_of
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import in_order
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.wording import counted

# Deeper than any real hierarchy; it stops the loop if parents form a cycle.
_MAX_LEVELS = 16
# Parallel reads of a docstore that has no batch call of its own.
_AT_ONCE = 16
# Nodes read from the docstore, by id; None for missing ones.
Known: TypeAlias = dict[str, BaseNode | None]


MergedScore: TypeAlias = Literal["mean", "max"]

_MERGED: Mapping[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "max": max}


class AutoMergingRetriever(Retriever):
    """Hits of a retriever, in which a parent replaces its children if enough of them were found.

    First, a chunk that is missing between two found neighbours is added with the mean of their
    scores. Then parents replace their children, level by level. Each child counts once. A parent or
    neighbour is left out if the docstore does not have it, or if the scope or filters of the query
    exclude it; a missing one marks the answer degraded. If the docstore fails, or does not answer
    before the deadline of the query, the hits are returned unchanged and marked degraded.

    The nodes of a level are fetched in one call of ``get_nodes`` (``aget_nodes``) if the docstore
    overrides it. LlamaIndex's default reads one node after another; then several nodes are read in
    parallel.

    Args:
        vector_retriever: Finds the small chunks; any retriever.
        storage_context: Its docstore holds the parents; a docstore is accepted too.
        simple_ratio_thresh: A parent replaces its children if more than this share of them was
            found, in ``[0, 1)``.
        verbose: Whether to log each answer; see ``search(query).trace`` for more.
        callback_manager: LlamaIndex's, for applications that still use one.
        object_map: Objects that index nodes refer to, by id.
        objects: Index nodes that carry the objects they refer to.
        merged_score: The score of a parent: the ``"mean"`` or ``"max"`` of its found children's.
        top_k: Number of hits if the query sets none; None for all.
        name: Name in traces.

    Raises:
        ConfigurationError: ``simple_ratio_thresh`` is out of range, or an argument is of another
            type.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - LlamaIndex's arguments
        self,
        vector_retriever: BaseRetriever,
        storage_context: StorageContext | BaseDocumentStore,
        simple_ratio_thresh: Annotated[float, Range(least=0, below=1)] = 0.5,
        verbose: bool = False,  # noqa: FBT001, FBT002 - LlamaIndex's
        callback_manager: CallbackManager | None = None,
        object_map: Mapping[str, object] | None = None,
        objects: Sequence[IndexNode] | None = None,
        *,
        merged_score: MergedScore = "mean",
        top_k: int | None = None,
        name: str = "auto_merging",
    ) -> None:
        super().__init__(top_k=top_k, name=name, callback_manager=callback_manager)
        self._verbose = verbose
        self.object_map = objects_by_id(objects, object_map)
        self.source = vector_retriever
        self.docstore = (
            storage_context.docstore
            if isinstance(storage_context, StorageContext)
            else storage_context
        )
        self.threshold = simple_ratio_thresh
        self.merged_score = merged_score

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """Retriever of the small chunks."""
        return [self.source]

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Retrieve children, then merge them into their parents."""
        name = name_of(self.source)
        search = hits_of(self.source, self._for_children(query), source=name)
        hits = yield from step(name, search, reports=True)
        hits = in_order(hits) if any(hit.score is None for hit in hits) else ordered(hits)
        fetched: Known = {}
        for _ in range(_MAX_LEVELS):
            merged = yield from or_degraded(self.name, self._next_level(hits, query, fetched), hits)
            unchanged = node_ids(merged) == node_ids(hits)
            hits = merged
            if unchanged:
                break
        return hits[: query.top_k]

    def _next_level(self, hits: Sequence[Hit], query: Query, fetched: Known) -> Plan[list[Hit]]:
        gaps = _gaps(hits)
        yield from self._fetch([*gaps, *_families(hits)], fetched)  # in one call
        nodes = yield from self._nodes([*gaps], query, fetched)
        between = [Hit(node=node, score=gaps[id_], source=self.name) for id_, node in nodes.items()]
        hits = ordered([*hits, *between])
        families = _families(hits)
        parents = yield from self._nodes(list(families), query, fetched)
        merged: list[Hit] = []
        gone: dict[str, str] = {}
        for id_, parent in parents.items():
            family = families[id_]
            if len(family) > self.threshold * len(parent.child_nodes or family):
                score = _MERGED[self.merged_score]([score_of(child) for child in family])
                merged.append(Hit(node=parent, score=score, source=self.name))
                gone.update({child.node.node_id: id_ for child in family})
        note_merged(gone)
        return ordered([*merged, *(hit for hit in hits if hit.node.node_id not in gone)])

    def _nodes(self, ids: Sequence[str], query: Query, fetched: Known) -> Plan[dict[str, BaseNode]]:
        """Return nodes of the docstore by id, without those that the query excludes."""
        yield from self._fetch(ids, fetched)
        nodes = {id_: fetched[id_] for id_ in ids}
        return {
            id_: node
            for id_, node in nodes.items()
            if node is not None and matches(query.condition, node.metadata)
        }

    def _fetch(self, ids: Sequence[str], fetched: Known) -> Plan[None]:
        """Read the nodes that are not in `fetched` yet."""
        new = [id_ for id_ in dict.fromkeys(ids) if id_ not in fetched]
        if not new:
            return
        # Tasks end before the query, which leaves time to return the hits without them.
        tasks = [Task("docstore", call(read)) for read in self._reads(new)]
        outcomes: list[Outcome[list[BaseNode]]] = yield Together(tasks)
        nodes = {node.node_id: node for outcome in outcomes for node in outcome.result()}
        fetched.update({id_: nodes.get(id_) for id_ in new})
        missing = [id_ for id_ in new if id_ not in nodes]
        if missing:
            note_degraded(
                self.name, f"the docstore lacks {counted(len(missing), 'node')}: {missing[:5]}"
            )

    def _reads(self, ids: Sequence[str]) -> list[Call[list[BaseNode]]]:
        """Return the calls that read nodes: one, or parallel ones for a sequential docstore."""
        store, kind = self.docstore, type(self.docstore)
        kvstore = getattr(store, "_kvstore", None)  # no public name
        one_call = (
            (kind is SimpleDocumentStore and type(kvstore) is SimpleKVStore)
            or kind.get_nodes is not BaseDocumentStore.get_nodes
            or kind.aget_nodes is not BaseDocumentStore.aget_nodes
        )
        parts = 1 if one_call else min(_AT_ONCE, len(ids))
        # The default aget_nodes needs the async client of the store, which may be missing.
        is_async = kind.aget_nodes is not BaseDocumentStore.aget_nodes

        def read(part: list[str]) -> Call[list[BaseNode]]:
            return Call(
                lambda: store.get_nodes(part, raise_error=False),
                (lambda: store.aget_nodes(part, raise_error=False)) if is_async else None,
            )

        return [read(list(ids[start::parts])) for start in range(parts)]


def _gaps(hits: Sequence[Hit]) -> dict[str, float]:
    """Return the mean score of both neighbours of each missing chunk between two found ones."""
    before = {hit.node.next_node.node_id: hit for hit in hits if hit.node.next_node}
    behind = {hit.node.prev_node.node_id: hit for hit in hits if hit.node.prev_node}
    present = set(node_ids(hits))
    missing = [id_ for id_ in before if id_ in behind and id_ not in present]
    return {id_: fmean((score_of(before[id_]), score_of(behind[id_]))) for id_ in missing}


def _families(hits: Sequence[Hit]) -> dict[str, list[Hit]]:
    """Return the hits of each parent, by its id."""
    families: dict[str, list[Hit]] = {}
    for hit in hits:
        if hit.node.parent_node is not None:
            families.setdefault(hit.node.parent_node.node_id, []).append(hit)
    return families
