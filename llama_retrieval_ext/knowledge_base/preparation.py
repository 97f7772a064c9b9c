"""Prepares documents for storage, in groups as they come: identifies, splits and embeds them."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import IO, TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, Document, MetadataMode
from tqdm import tqdm  # type: ignore[import-untyped]

from llama_retrieval_ext.checks import is_vector
from llama_retrieval_ext.errors import ConfigurationError, StoreClosedError, StoreUnavailableError
from llama_retrieval_ext.knowledge_base.documents import (
    AS_IT_IS,
    Allowed,
    Dating,
    SourceDocument,
    allowed_by,
    check_ids,
    check_keys,
    digest_of,
    each_or_error,
    name_of,
    stamped,
)
from llama_retrieval_ext.knowledge_base.graph import Extraction
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    Prepared,
    SpooledDocument,
    Writable,
    key_of_node,
    with_allowed,
)
from llama_retrieval_ext.knowledge_base.passages import Watch
from llama_retrieval_ext.knowledge_base.readers.code import LANGUAGES
from llama_retrieval_ext.knowledge_base.readers.outline import suffix_of
from llama_retrieval_ext.knowledge_base.splitting import Splitter

Group = list[BaseNode]

# A batch is 64 documents to split, 4 MB of text, or 4,096 nodes: large enough for the throughput of
# models and engines and for a negligible flush per batch, small enough to repeat after a crash.
BATCH_WEIGHT = 4096
_DOCUMENT_WEIGHT = 64
_PATH = 100  # characters of a path in a message; more are a text
_NODE_CHARACTERS = 1024  # fewer than most nodes have
# A progress bar is shown after this delay, in seconds: that of a shorter call would flicker.
_DELAY_S = 0.5


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


# The embeddings of texts, by the text.
Embeddings: TypeAlias = Mapping[str, Sequence[float]]

_NONE: Embeddings = MappingProxyType({})
# The model's batches in a step of the progress bar.
_STEP_BATCHES = 16


class Embedder:
    """Embeds nodes with the batch size of its model, except texts whose embedding is known.

    It calls `watch` with the number of characters after some batches.
    """

    def __init__(
        self, model: BaseEmbedding, embeddings: Embeddings = _NONE, watch: Watch = float
    ) -> None:
        self.model = model
        self.embeddings = embeddings
        self._watch = watch
        self.dimension: int | None = None  # of its vectors; None before the first

    def embedded(self, documents: Sequence[Prepared]) -> list[Prepared | Exception]:
        """Return each document with an embedding on every node, or its error."""
        results = each_or_error(documents, self._embedded)
        for number, document in enumerate(results):
            for node in () if isinstance(document, Exception) else document.nodes:
                if not is_vector(node.embedding):
                    results[number] = ConfigurationError(
                        f"the embedding of node {node.node_id!r} is empty or has NaN or infinite "
                        "numbers in it; embed it again"
                    )
                    break
        return results

    def _embedded(self, documents: Sequence[Prepared]) -> list[Prepared]:
        texts = [
            node.get_content(MetadataMode.EMBED)
            for document in documents
            for node in document.nodes
            if node.embedding is None
        ]
        if not texts:
            return list(documents)
        unknown = [text for text in texts if text not in self.embeddings]
        vectors: list[list[float]] = []
        step = _STEP_BATCHES * self.model.embed_batch_size
        for start in range(0, len(unknown), step):
            batch = unknown[start : start + step]
            vectors += self.model.get_text_embedding_batch(batch)
            self._watch(sum(map(len, batch)))
        if len(vectors) != len(unknown):
            raise ConfigurationError(
                f"{type(self.model).__name__} gave {len(vectors)} embeddings for {len(unknown)} "
                "texts"
            )
        self.dimension = len(vectors[0]) if vectors else self.dimension
        new, of_texts = iter(vectors), iter(texts)
        embedded: list[Prepared] = []
        for document in documents:
            made: list[BaseNode] = []
            for node in document.nodes:
                if node.embedding is None:
                    vector = self.embeddings.get(next(of_texts)) or next(new)
                    node = node.model_copy(update={"embedding": list(vector)})  # noqa: PLW2901
                made.append(node)
            embedded.append(replace(document, nodes=tuple(made)))
        return embedded


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """Documents ready to be written, without nodes if they have no text, or their errors."""

    results: Mapping[DocumentKey, Writable | Exception]
    dimension: int | None = None  # of the vectors that the model returned; None if not called
    splitting: str = ""  # how documents were split; empty if all were nodes


@dataclass(frozen=True, slots=True)
class Preparation:
    """The steps before documents are written; picklable, with its model."""

    splitter: Splitter
    embed_model: BaseEmbedding
    extraction: Extraction | None = None
    keeps_history: bool = False

    def identified(
        self,
        groups: Iterable[Sequence[BaseNode]],
        scope: Mapping[str, str],
        failed: Callable[[str, Exception], object],
        allowed: Allowed = None,
        dating: Dating = AS_IT_IS,
    ) -> list[SourceDocument]:
        """Return the documents in groups of nodes with one document id: one for each scope.

        `scope` is the metadata of the caller's scope; `failed` gets the id and error of the others.
        """
        documents: list[SourceDocument] = []
        for group in groups:
            try:
                dated = map(dating.dated, group)
                documents += self._documents_in([*dated], scope, allowed)
            except Exception as error:  # noqa: BLE001 - the report carries it
                failed(name_of(group[0]), error)
        return documents

    def fingerprint(self, *, is_whole: bool, has_code: bool = False) -> str:
        """Return the settings on which the nodes of a document depend, or of given nodes."""
        cut = self.splitter.fingerprint if is_whole else ""
        if is_whole and has_code and self.splitter.cuts_code:
            cut += " code"
        return cut if self.extraction is None else cut + self.extraction.fingerprint

    def _documents_in(
        self, group: Sequence[BaseNode], scope: Mapping[str, str], allowed: Allowed
    ) -> list[SourceDocument]:
        members: dict[DocumentKey, list[BaseNode]] = {}
        for node in group:
            members.setdefault(key_of_node(node, scope), []).append(node)
        for key, nodes in members.items():
            check_ids(key, nodes)
            for node in nodes:
                check_keys(node.metadata)
        is_whole, has_code = isinstance(group[0], Document), suffix_of(group[0]) in LANGUAGES
        fingerprint = self.fingerprint(is_whole=is_whole, has_code=has_code)
        documents: list[SourceDocument] = []
        for key, nodes in members.items():
            bare = tuple(with_allowed(node, ()) for node in nodes)  # splitters count its length
            digest = digest_of(bare, fingerprint)
            documents.append(SourceDocument(key, bare, digest, allowed_by(nodes, allowed)))
        return documents

    def prepared(
        self,
        documents: Sequence[SourceDocument],
        embeddings: Embeddings = _NONE,
        watch: Watch = float,
        rows: Callable[[Prepared], Mapping[str, str]] | None = None,
    ) -> PreparedBatch:
        """Return documents ready to be stored, or the error of each; their keys must differ.

        `embeddings` are by the text that was embedded. `watch` is called with a number of
        characters after parts of long texts are split, and while texts are embedded. `rows` returns
        the extracted rows of a document if they are known.
        """
        embedder = Embedder(self.embed_model, embeddings, watch)
        split = self.splitter.nodes_of(documents, watch)
        parts: list[Prepared | Exception] = []
        for document, nodes in zip(documents, split, strict=True):
            part = self._with_text(document, nodes)
            if rows is not None and isinstance(part, Prepared) and part.nodes:
                part = replace(part, rows=rows(part))
            parts.append(part)
        made = self._completed(parts, embedder)
        keys = map(attrgetter("key"), documents)
        is_split = any(map(attrgetter("is_whole"), documents))
        splitting = self.splitter.description if is_split else ""
        return PreparedBatch(dict(zip(keys, made, strict=True)), embedder.dimension, splitting)

    def spooled(
        self,
        document: SourceDocument,
        file: IO[bytes],
        before_of: Callable[[Prepared], tuple[Embeddings, Mapping[str, str]]],
        watch: Watch = float,
    ) -> PreparedBatch:
        """Return a long document ready to be stored, or its error; its nodes are in the file.

        `before_of` returns embeddings that some nodes of a part may have, and extracted rows if
        they are known; `watch` is called as by `prepared`.
        """
        spooled = SpooledDocument(document.key, document.digest, document.allowed, file)
        embedder = Embedder(self.embed_model, watch=watch)
        try:
            for nodes in self.splitter.groups_of(document, watch):
                part = _or_raised(self._with_text(document, nodes))
                embedder.embeddings, rows = before_of(part)
                (made,) = self._completed([replace(part, rows=rows)], embedder)
                spooled.append(_or_raised(made))
        except (StoreUnavailableError, StoreClosedError):  # of `before_of`; of all documents
            raise
        except Exception as error:  # noqa: BLE001 - the document's result
            return PreparedBatch({document.key: error})
        splitting = self.splitter.description
        return PreparedBatch({document.key: spooled}, embedder.dimension, splitting)

    def _with_text(
        self, document: SourceDocument, nodes: Sequence[BaseNode] | Exception
    ) -> Prepared | Exception:
        if isinstance(nodes, Exception):
            return nodes
        stamp = partial(stamped, key=document.key, keeps_history=self.keeps_history)
        try:
            kept = tuple(map(stamp, filter(is_searchable, nodes)))
        except Exception as error:  # noqa: BLE001 - the document's result
            return error
        keeps = document.allowed is None
        made = Prepared(document.key, document.digest, kept, keeps_allowed=keeps)
        return made.shared(document.allowed) if kept and document.allowed else made

    def _completed(
        self, parts: Sequence[Prepared | Exception], embedder: Embedder
    ) -> list[Prepared | Exception]:
        """Return documents, or their parts, after all steps behind splitting, or their errors."""
        completed = list(parts)
        stages = [embedder.embedded]
        if self.extraction is not None:
            stages.append(self.extraction.extracted)
        for stage in stages:
            ready = {
                number: part
                for number, part in enumerate(completed)
                if isinstance(part, Prepared) and part.nodes
            }
            if ready:
                for number, result in zip(ready, stage([*ready.values()]), strict=True):
                    completed[number] = result
        return completed


def _or_raised(part: Prepared | Exception) -> Prepared:
    if isinstance(part, Exception):
        raise part
    return part


def is_searchable(node: BaseNode) -> bool:
    """Return whether a node has text or an embedding."""
    return node.embedding is not None or bool(node.get_content(MetadataMode.NONE).strip())
