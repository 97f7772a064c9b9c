"""Documents in groups and batches, with a progress bar over them."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from itertools import count, groupby
from pathlib import Path

from llama_index.core.schema import BaseNode, Document, MetadataMode
from tqdm import tqdm  # type: ignore[import-untyped]

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.documents import batched, name_of

Group = list[BaseNode]

# A batch is 64 documents to split, 4 MB of text, or 4,096 nodes: large enough for the throughput of
# models and engines and for a negligible flush per batch, small enough to repeat after a crash.
BATCH_WEIGHT = 4096
_DOCUMENT_WEIGHT = 64
_PATH = 100  # characters of a path in a message; more are a text
_NODE_CHARACTERS = 1024  # fewer than most nodes have


def grouped(items: Iterable[object]) -> Sequence[Group] | Iterator[Group]:
    """Return groups of one ``Document``, or of the nodes of one document.

    In a list or tuple, the nodes of a document may be anywhere. An iterator is not read ahead:
    the nodes of a document must be consecutive.
    """
    if isinstance(items, str | BaseNode) or not isinstance(items, Iterable):
        raise ConfigurationError(f"expected a list of documents or nodes, {_instead_of(items)}")
    named = _named(items)
    if not isinstance(items, Sequence):
        return ([node for _, node in group] for _, group in groupby(named, lambda each: each[0]))
    groups: dict[object, Group] = {}
    for name, node in named:
        groups.setdefault(name, []).append(node)
    return list(groups.values())


def _instead_of(item: object) -> str:
    """Return what was given instead of documents, and what to write."""
    if isinstance(item, BaseNode):
        return f"got one {type(item).__name__}; write [...] around it"
    if isinstance(item, str | Path):
        path = str(item) if len(str(item)) <= _PATH else "PATH"
        return (
            f"got {type(item).__name__}; for a file or folder write kb.sync({path!r}) or "
            f"kb.add(read_documents({path!r})), for a text Document(text=..., id_=...) in a list"
        )
    return f"got {type(item).__name__}; write [Document(text=..., id_=...)]"


def group_batches(groups: Iterable[Group]) -> Iterator[list[Group]]:
    """Yield groups in batches, each written in one step."""
    return batched(groups, weight_of, BATCH_WEIGHT)


def weight_of(group: Sequence[BaseNode]) -> int:
    """Return the weight of a document, or of the nodes of one, in a batch."""
    if isinstance(group[0], Document):
        return max(_DOCUMENT_WEIGHT, len(group[0].text) // _NODE_CHARACTERS)
    return len(group)


def _named(items: Iterable[object]) -> Iterator[tuple[object, BaseNode]]:
    numbers = count()
    for item in items:
        if not isinstance(item, BaseNode):
            raise ConfigurationError(f"expected LlamaIndex documents or nodes, {_instead_of(item)}")
        # Documents are never grouped: with the same id, the right one would be ambiguous.
        yield next(numbers) if isinstance(item, Document) else name_of(item), item


# Shown after this delay, in seconds: a bar for a shorter call would flicker.
_DELAY_S = 0.5


@contextmanager
def progress(
    items: Iterable[object], *, show: bool, title: str = "Adding documents"
) -> Generator[Callable[[int], object]]:
    """Show a progress bar; yield the function that advances it by a number of documents.

    Without a length of the items, the bar counts up.
    """
    total = len(items) if isinstance(items, Sized) else None
    with tqdm(total=total, desc=title, unit="doc", delay=_DELAY_S, disable=not show) as bar:
        yield bar.update


def character_bar(groups: Iterable[Group], *, show: bool) -> tqdm:
    """Return a progress bar over the characters of groups; see `size_of`."""
    total = sum(map(size_of, groups)) if isinstance(groups, Sequence) else None
    return tqdm(
        total=total,
        desc="Adding documents",
        unit="char",
        unit_scale=True,
        delay=_DELAY_S,
        disable=not show,
    )


def size_of(group: Group) -> int:
    """Return the number of characters of a group."""
    return sum(len(node.get_content(MetadataMode.NONE)) for node in group)
