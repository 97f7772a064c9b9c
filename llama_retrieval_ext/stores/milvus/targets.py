"""Which nodes a call is about: by id, by document, by metadata."""

from collections.abc import Sequence

from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.filters import parse_filters
from llama_retrieval_ext.stores.milvus.conditions import Expression, all_of, compiled, one_of
from llama_retrieval_ext.stores.milvus.safe_text import safe_text
from llama_retrieval_ext.stores.milvus.schema import DOC, ID


def target(
    *,
    node_ids: Sequence[str] | None = None,
    doc_ids: Sequence[str] | None = None,
    filters: MetadataFilters | None = None,
) -> Expression:
    """The expression for nodes that satisfy all that is given; True where nothing is.

    Args:
        node_ids: They have one of these ids; none of them if there are no ids.
        doc_ids: They come from one of these documents.
        filters: They have such metadata.

    Raises:
        InvalidFilterError: The filters cannot mean anything.
        UnsupportedFilterError: The engine cannot evaluate them.

    Examples:
        >>> target(doc_ids=["leave.md"])
        'doc == "leave.md"'

    """
    parts: list[Expression] = []
    if node_ids is not None:
        parts.append(one_of(ID, [safe_text(node_id) for node_id in node_ids]))
    if doc_ids is not None:
        # Nodes without a document have an empty string there.
        parts.append(one_of(DOC, [safe_text(doc_id) for doc_id in doc_ids if doc_id]))
    if filters is not None:
        parts.append(compiled(parse_filters(filters)))
    return all_of(parts)
