"""Which nodes a call is about: by id, by document, by metadata."""

from collections.abc import Sequence

from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.filters import parse_filters
from llama_retrieval_ext.stores.nodes.surrogates import utf8_safe
from llama_retrieval_ext.stores.points.clauses import NOTHING, Clause, Equals, Group, HasId
from llama_retrieval_ext.stores.points.conditions import clause_of
from llama_retrieval_ext.stores.points.payload import DOC
from llama_retrieval_ext.stores.points.point_id import point_id


def target(
    *,
    node_ids: Sequence[str] | None = None,
    doc_ids: Sequence[str] | None = None,
    filters: MetadataFilters | None = None,
) -> Clause | None:
    """The nodes that satisfy all that is given; None where nothing is, for every node.

    Args:
        node_ids: They have one of these ids; none of them if there are no ids.
        doc_ids: They come from one of these documents.
        filters: They have such metadata.

    Raises:
        InvalidFilterError: The filters cannot mean anything.
        UnsupportedFilterError: The engine cannot evaluate them.
    """
    parts: list[Clause] = []
    if node_ids is not None:
        parts.append(HasId(frozenset(point_id(node_id) for node_id in node_ids)))
    if doc_ids is not None:
        parts.append(from_documents(doc_ids))
    if filters is not None:
        parts.append(clause_of(parse_filters(filters)))
    return Group(every=tuple(parts)) if parts else None


def from_documents(doc_ids: Sequence[str]) -> Clause:
    """The nodes that come from one of these documents; none of them if there are none."""
    return Equals(DOC, tuple(utf8_safe(doc_id) for doc_id in doc_ids)) if doc_ids else NOTHING
