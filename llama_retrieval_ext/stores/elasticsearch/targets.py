"""Which nodes a call is about: by id, by document, by metadata."""

from collections.abc import Sequence

from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.filters import parse_filters
from llama_retrieval_ext.stores.elasticsearch.conditions import all_of, compiled
from llama_retrieval_ext.stores.elasticsearch.documents import key_of
from llama_retrieval_ext.stores.elasticsearch.mapping import DOC
from llama_retrieval_ext.stores.elasticsearch.request import Json
from llama_retrieval_ext.stores.elasticsearch.terms import scalar


def target(
    *,
    node_ids: Sequence[str] | None = None,
    doc_ids: Sequence[str] | None = None,
    filters: MetadataFilters | None = None,
) -> Json | None:
    """The query for nodes that satisfy all that is given; None where nothing is, for every node.

    Args:
        node_ids: They have one of these ids; none of them if there are no ids.
        doc_ids: They come from one of these documents.
        filters: They have such metadata.

    Raises:
        InvalidFilterError: The filters cannot mean anything.
        UnsupportedFilterError: The engine cannot evaluate them.
    """
    parts: list[Json] = []
    if node_ids is not None:
        parts.append({"ids": {"values": [key_of(node_id) for node_id in node_ids]}})
    if doc_ids is not None:
        parts.append({"terms": {DOC: [scalar(doc_id) for doc_id in doc_ids]}})
    if filters is not None:
        parts.append(compiled(parse_filters(filters)))
    return all_of(parts) if parts else None
