"""Which nodes a call is about, as an expression."""

from llama_retrieval_ext.stores.milvus.conditions import Expression, all_of, compiled, one_of
from llama_retrieval_ext.stores.milvus.safe_text import safe_text
from llama_retrieval_ext.stores.milvus.schema import DOC, ID
from llama_retrieval_ext.stores.target import Target


def expression_for(target: Target) -> Expression:
    """The expression for the nodes that are meant; True for every node.

    Raises:
        InvalidFilterError: The filters cannot mean anything.
        UnsupportedFilterError: The engine cannot evaluate them.

    Examples:
        >>> expression_for(Target(doc_ids=["leave.md"]))
        '(doc == "leave.md")'

    """
    parts: list[Expression] = []
    if target.node_ids is not None:
        parts.append(one_of(ID, [safe_text(node_id) for node_id in target.node_ids]))
    if target.doc_ids is not None:
        parts.append(one_of(DOC, [safe_text(doc_id) for doc_id in target.doc_ids]))
    condition = target.condition
    if condition is not None:
        parts.append(compiled(condition))
    return all_of(parts)
