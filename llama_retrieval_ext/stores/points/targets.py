"""Which nodes a call is about, as a clause."""

from llama_retrieval_ext.stores.nodes.surrogates import utf8_safe
from llama_retrieval_ext.stores.points.clauses import NOTHING, Clause, Equals, Group, HasId
from llama_retrieval_ext.stores.points.conditions import clause_of
from llama_retrieval_ext.stores.points.payload import DOC
from llama_retrieval_ext.stores.points.point_id import point_id
from llama_retrieval_ext.stores.target import Target


def clause_for(target: Target) -> Clause | None:
    """The clause for the nodes that are meant; None for every node.

    Raises:
        InvalidFilterError: The filters cannot mean anything.
        UnsupportedFilterError: The engine cannot evaluate them.
    """
    parts: list[Clause] = []
    if target.node_ids is not None:
        parts.append(HasId(frozenset(point_id(node_id) for node_id in target.node_ids)))
    if target.doc_ids is not None:
        texts = tuple(utf8_safe(doc_id) for doc_id in target.doc_ids)
        parts.append(Equals(DOC, texts) if texts else NOTHING)
    condition = target.condition
    if condition is not None:
        parts.append(clause_of(condition))
    return Group(every=tuple(parts)) if parts else None
