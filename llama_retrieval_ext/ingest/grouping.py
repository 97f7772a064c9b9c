"""What a caller adds, cut into groups: a document each, and batches of documents."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby
from typing import TypeVar

from llama_index.core.schema import BaseNode, Document

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.ingest.documents import ref_of

Group = list[BaseNode]
T = TypeVar("T")

# A batch is 64 documents to be split, or 4,096 nodes: enough for embedding models and engines to
# work at their pace and for the flush behind each batch not to count, and little to do again when
# the process dies.
_BATCH_WEIGHT = 4096
_DOCUMENT_WEIGHT = 64


def grouped(items: Iterable[object]) -> Sequence[Group] | Iterator[Group]:
    """Groups of one ``Document``, or of the nodes of one document.

    Of a list or tuple, the nodes of a document are gathered wherever they stand. An iterator is
    not read ahead: there, they are those that follow each other.

    Args:
        items: LlamaIndex documents and nodes, mixed as they come.

    Raises:
        ConfigurationError: Something is neither.
    """
    if isinstance(items, str | BaseNode) or not isinstance(items, Iterable):
        raise ConfigurationError(
            f"expected documents or nodes, got one {type(items).__name__}; write [...] around it"
            + (", as Document(text=...)" if isinstance(items, str) else "")
        )
    named = _named(items)
    if not isinstance(items, Sequence):
        return ([node for _, node in group] for _, group in groupby(named, lambda each: each[0]))
    groups: dict[object, Group] = {}
    for name, node in named:
        groups.setdefault(name, []).append(node)
    return list(groups.values())


def batches(groups: Iterable[Group]) -> Iterator[list[Group]]:
    """Groups in batches that are worth the while of an embedding model and an engine."""
    batch: list[Group] = []
    weight = 0
    for group in groups:
        batch.append(group)
        weight += _DOCUMENT_WEIGHT if isinstance(group[0], Document) else len(group)
        if weight >= _BATCH_WEIGHT:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


def _named(items: Iterable[object]) -> Iterator[tuple[object, BaseNode]]:
    numbers = count()
    for item in items:
        if not isinstance(item, BaseNode):
            raise ConfigurationError(
                f"expected LlamaIndex documents or nodes, got {type(item).__name__}; "
                "for text write Document(text=..., id_=...)"
            )
        # Documents are never taken together, even with the same id: which would be the right one?
        yield next(numbers) if isinstance(item, Document) else name_of(item), item


def name_of(node: BaseNode) -> str:
    """The id of the document a node belongs to, as far as it has one."""
    try:
        return ref_of(node)
    except ValueError:  # it has several sources, which is reported as its failure later
        return node.node_id
