"""Documents as they come: in groups, with stable ids, in batches, with a progress bar."""

import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias
from uuid import UUID

from llama_index.core.schema import BaseNode, Document, MetadataMode
from tqdm import tqdm  # type: ignore[import-untyped]

from llama_retrieval_ext.errors import ConfigurationError, UnstableIdWarning
from llama_retrieval_ext.knowledge_base.documents import name_of
from llama_retrieval_ext.knowledge_base.ledger.prepared import ref_of
from llama_retrieval_ext.scope import KB_KEY, SOURCE_KEY, TENANT_KEY, page_in, source_in

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
        return ([node for _, node in group] for _, group in groupby(named, itemgetter(0)))
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


def character_bar(groups: Iterable[Group]) -> tqdm:
    """Return a progress bar over the characters of groups; see `size_of`."""
    total = sum(map(size_of, groups)) if isinstance(groups, Sequence) else None
    title = "Adding documents"
    return tqdm(total=total, desc=title, unit="char", unit_scale=True, delay=_DELAY_S)


def size_of(group: Group) -> int:
    """Return the number of characters of a group."""
    return sum(len(node.get_content(MetadataMode.NONE)) for node in group)


_UUID4: Final = 4
# Metadata in which LlamaIndex's readers name the file of a document, and its version.
_FILE_NAME: Final = "file_name"
_VERSION_KEYS: Final = ("file_size", "last_modified_date")
_Group: TypeAlias = tuple[str, str, str]


@dataclass
class _Parts:
    """The documents of one version of a file or of a page."""

    version: object
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)


class ReaderIds:
    """Replaces random ids by ids made from the file and the page or position.

    The ids are the same in every process. The documents of a file may be added in several calls:
    while the file is unchanged, a document with another text is another part of the file.
    """

    def __init__(self) -> None:
        self._parts: dict[_Group, _Parts] = {}
        self._lock = Lock()
        self._has_warned = False

    def recognised(
        self, groups: Iterable[Group], scope: Mapping[str, str], occurrences: Counter[object]
    ) -> Iterator[Group]:
        """Yield groups with stable ids for random ones; count the texts of the call."""
        for group in groups:
            nodes: Group = []
            for node in group:
                try:
                    ref = ref_of(node)
                    uuid = UUID(ref)
                    is_random = uuid.version == _UUID4 and str(uuid) == ref
                except ValueError:
                    is_random = False
                nodes.append(self._stable(node, scope, occurrences) if is_random else node)
            yield nodes

    def _stable(
        self, node: BaseNode, scope: Mapping[str, str], occurrences: Counter[object]
    ) -> BaseNode:
        """Return a document with a stable id; a node, or what is of no file, unchanged."""
        file = source_in(node.metadata)
        if not file or not isinstance(node, Document):
            self._warn(node)
            return node
        label = page_in(node.metadata)
        place = [scope.get(key) or node.metadata.get(key) for key in (TENANT_KEY, KB_KEY)]
        group = (repr(place), file, repr(label))
        text = hash(node.text)
        times = occurrences[*group, text]
        occurrences[*group, text] += 1
        version = _version_of(node, file)
        with self._lock:
            parts = self._parts.get(group)
            if parts is None or parts.version != version:
                parts = self._parts[group] = _Parts(version)
            number = parts.numbers.setdefault((text, times), len(parts.numbers))
        page = f"_page_{label}" if label is not None else ""
        part = f"_part_{number}" if number or not page else ""
        return node.model_copy(update={"id_": f"{file}{page}{part}"})

    def _warn(self, node: BaseNode) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        name = node.metadata.get(SOURCE_KEY) or node.metadata.get(_FILE_NAME)
        whose = "" if name is None else f" of {name!r}"
        warnings.warn(
            f"the id {ref_of(node)!r} of a document{whose} is random, and its metadata do not say "
            "which part of which file it is: added again, it is another document. Read files with "
            "read_documents, or give documents an id, as in Document(text=..., id_=url)",
            UnstableIdWarning,
            stacklevel=2,
        )


def _version_of(document: BaseNode, file: str) -> object:
    try:
        status = Path(file).stat()
    except (OSError, ValueError):  # not on this machine: use the recorded metadata
        return tuple(document.metadata.get(key) for key in _VERSION_KEYS)
    return status.st_mtime_ns, status.st_size
