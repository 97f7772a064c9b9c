"""Which nodes a call is about: by id, by document, by metadata."""

from collections.abc import Sequence

from llama_index.core.vector_stores.types import MetadataFilters
from qdrant_edge import FieldCondition, Filter, HasIdCondition, MatchAny

from llama_retrieval_ext.filters import parse_filters
from llama_retrieval_ext.stores.embedded.conditions import Part, compiled
from llama_retrieval_ext.stores.embedded.payload import DOC
from llama_retrieval_ext.stores.embedded.points import point_id
from llama_retrieval_ext.stores.embedded.surrogates import utf8_safe


def target(
    *,
    node_ids: Sequence[str] | None = None,
    doc_ids: Sequence[str] | None = None,
    filters: MetadataFilters | None = None,
) -> Filter | None:
    """The nodes that satisfy all that is given; None where nothing is, for every node.

    Args:
        node_ids: They have one of these ids; none of them if there are no ids.
        doc_ids: They come from one of these documents.
        filters: They have such metadata.

    Raises:
        InvalidFilterError: The filters cannot mean anything.
        UnsupportedFilterError: The engine cannot evaluate them.
    """
    parts: list[Part] = []
    if node_ids is not None:
        parts.append(HasIdCondition({point_id(node_id) for node_id in node_ids}))
    if doc_ids is not None:
        parts.append(_from_documents(doc_ids))
    if filters is not None:
        parts.append(compiled(parse_filters(filters)))
    return Filter(must=parts) if parts else None


def from_document(ref_doc_id: str) -> Filter:
    """The nodes that come from a document."""
    return Filter(must=[_from_documents([ref_doc_id])])


def _from_documents(doc_ids: Sequence[str]) -> FieldCondition:
    return FieldCondition(DOC, match=MatchAny([utf8_safe(doc_id) for doc_id in doc_ids]))
