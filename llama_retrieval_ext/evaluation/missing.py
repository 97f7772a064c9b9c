"""Judged targets that are not there: what no retriever can find, such as a misspelt file."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import PurePath
from typing import Final

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.evaluation.judgements import Judgements, Level
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.tree import children_of
from llama_retrieval_ext.retrievers.bm25.retriever import BM25Retriever
from llama_retrieval_ext.retrievers.store_retriever import StoreRetriever
from llama_retrieval_ext.scope import DOCUMENT_FIELD, Scope
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.wording import counted, quoted

# Targets to look up, one request each; and to show.
_MOST: Final = 100
_SHOWN: Final = 5


def missing_targets(
    retrievers: Iterable[BaseRetriever], judgements: Judgements, seen: Collection[str]
) -> tuple[str, ...]:
    """Return the hint that judged targets are not there; empty if all are, or if nobody can tell.

    Only those that no answer had are looked up, in the stores below the retrievers and within
    their scopes, at most 100. Texts of passages are not.

    Args:
        retrievers: The retrievers that answered.
        judgements: The judgements.
        seen: Names of all hits.
    """
    relevant = {
        target: query_id  # of a question that it is judged for
        for query_id, grades in judgements.relevant.items()
        for target, grade in grades.items()
        if grade > 0
    }
    leaves = [leaf for retriever in retrievers for leaf in _leaves(retriever, None)]
    unseen = sorted(relevant.keys() - {*seen})[:_MOST]
    if judgements.level is Level.PASSAGE or not unseen:
        return ()
    for leaf, _ in leaves:
        is_ours = isinstance(leaf, StoreRetriever) and isinstance(leaf.backend.store, EngineStore)
        if not is_ours and not isinstance(leaf, BM25Retriever):
            return ()
    missing = [
        target
        for target in unseen
        if not any(
            _has(leaf, scope, target, judgements, relevant[target]) for leaf, scope in leaves
        )
    ]
    if not missing:
        return ()
    shown = ", ".join(map(quoted, missing[:_SHOWN])) + (", …" if len(missing) > _SHOWN else "")
    judged = counted(len(relevant), f"judged {judgements.level.value}")
    return (
        f"not in the knowledge base: {len(missing)} of {judged}, which count as missed: {shown}",
    )


def _leaves(
    retriever: BaseRetriever, scope: Scope | None
) -> Iterator[tuple[BaseRetriever, Scope | None]]:
    bound = getattr(retriever, "scope", None)
    scope = bound if scope is None or bound is None else scope.narrowed(bound)
    children = children_of(retriever)
    if not children or isinstance(retriever, StoreRetriever):
        yield retriever, scope
    for child in () if isinstance(retriever, StoreRetriever) else children:
        yield from _leaves(child, scope)


def _has(
    leaf: BaseRetriever, scope: Scope | None, target: str, judgements: Judgements, query_id: str
) -> bool:
    condition = None if scope is None else scope.condition
    nodes: list[BaseNode] = []
    if isinstance(leaf, Retriever):
        node = run(leaf.read_node(target))
        nodes = [] if node is None else [node]
    if judgements.level is Level.DOCUMENT and not nodes:
        nodes = _nodes_named(leaf, target)
    return any(
        target in judgements.names_of(node, query_id) and matches(condition, node.metadata)
        for node in nodes
    )


def _nodes_named(leaf: BaseRetriever, target: str) -> list[BaseNode]:
    """Return nodes of documents that may have a name, such as the end of a path."""
    if isinstance(leaf, BM25Retriever):
        return [entry.node for entry in leaf._index.entries.values()]  # noqa: SLF001 - our own
    store = leaf.backend.store if isinstance(leaf, StoreRetriever) else None
    if not isinstance(store, EngineStore):
        return []
    name = PurePath(target).name
    contains = FilterOperator.TEXT_MATCH
    filters: list[MetadataFilter | MetadataFilters] = [
        MetadataFilter(key="file_path", value=name, operator=contains),
        MetadataFilter(key="file_name", value=name),
        MetadataFilter(key=DOCUMENT_FIELD, value=target),
    ]
    return store.get_nodes(filters=MetadataFilters(filters=filters, condition=FilterCondition.OR))
