"""Which nodes a call is about, as a query."""

from llama_retrieval_ext.stores.elasticsearch.conditions import all_of, compiled
from llama_retrieval_ext.stores.elasticsearch.documents import key_of
from llama_retrieval_ext.stores.elasticsearch.mapping import DOC
from llama_retrieval_ext.stores.elasticsearch.request import Json
from llama_retrieval_ext.stores.elasticsearch.terms import scalar
from llama_retrieval_ext.stores.target import Target


def query_for(target: Target) -> Json | None:
    """The query for the nodes that are meant; None for every node.

    Raises:
        InvalidFilterError: The filters cannot mean anything.
        UnsupportedFilterError: The engine cannot evaluate them.
    """
    parts: list[Json] = []
    if target.node_ids is not None:
        parts.append({"ids": {"values": [key_of(node_id) for node_id in target.node_ids]}})
    if target.doc_ids is not None:
        parts.append({"terms": {DOC: [scalar(doc_id) for doc_id in target.doc_ids]}})
    condition = target.condition
    if condition is not None:
        parts.append(compiled(condition))
    return all_of(parts) if parts else None
