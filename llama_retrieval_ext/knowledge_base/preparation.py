"""Prepares documents for storage: splits them, sets ids, and embeds their nodes, or anew."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from statistics import fmean
from time import perf_counter
from types import MappingProxyType
from typing import IO, Final, TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, Document, MetadataMode
from llama_index.core.utils import get_tokenizer
from tqdm import tqdm  # type: ignore[import-untyped]

from llama_retrieval_ext.checks import is_vector
from llama_retrieval_ext.embeddings.recorded import model_record
from llama_retrieval_ext.embeddings.resolve import (
    embed_model_dimension,
    embed_model_name,
    resolve_embed_model,
)
from llama_retrieval_ext.errors import ConfigurationError, StoreClosedError, StoreUnavailableError
from llama_retrieval_ext.knowledge_base.documents import (
    AS_IT_IS,
    Allowed,
    Dating,
    SourceDocument,
    allowed_by,
    batched,
    check_ids,
    check_keys,
    digest_of,
    each_or_error,
    name_of,
    stamped,
)
from llama_retrieval_ext.knowledge_base.graph import Extraction
from llama_retrieval_ext.knowledge_base.ledger.config import KnowledgeBaseConfig
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    Prepared,
    SpooledDocument,
    Writable,
    content_of,
    key_of_node,
    with_allowed,
)
from llama_retrieval_ext.knowledge_base.ledger.records import Entry
from llama_retrieval_ext.knowledge_base.passages import Watch
from llama_retrieval_ext.knowledge_base.readers.code import LANGUAGES
from llama_retrieval_ext.knowledge_base.readers.outline import suffix_of
from llama_retrieval_ext.knowledge_base.splitting import Splitter
from llama_retrieval_ext.wording import counted

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


# Nodes per batch: an interrupted copy repeats at most one, and the first gives the time.
_BATCH: Final = 100


class Reembedding:
    """Embeds the nodes of a knowledge base with another model; can show an estimate on stderr."""

    def __init__(self, embed_model: str | BaseEmbedding, *, show: bool) -> None:
        self.model = resolve_embed_model(embed_model)
        self.name = embed_model_name(self.model)
        self._record = model_record(self.model, embed_model if isinstance(embed_model, str) else "")
        self._embedder = Embedder(self.model)
        self._show = show

    @property
    def dimension(self) -> int | None:
        """The dimension of the new vectors; None before the first, if the model declares none."""
        return self._embedder.dimension or embed_model_dimension(self.model)

    def config(self, copied: KnowledgeBaseConfig) -> KnowledgeBaseConfig:
        """Return the configuration of the target."""
        return replace(
            copied, embed_model=self.name, model_record=self._record, vector_share=None, learned=""
        )

    def batches(
        self, entries: Sequence[Entry], sample: Sequence[BaseNode]
    ) -> Iterator[list[Entry]]:
        """Yield documents in batches; show an estimate before, with the time after the first.

        The number of tokens is estimated from a sample of the nodes.
        """
        if not entries:
            return
        count, total = get_tokenizer(), sum(entry.n_nodes for entry in entries)
        tokens = fmean([len(count(node.get_content(MetadataMode.EMBED))) for node in sample] or [0])
        work = f"{counted(total, 'node')}, about {tokens * total:,.0f} tokens with {self.name}"
        self._tell(work)
        started, n_done = perf_counter(), 0
        for batch in batched(entries, lambda entry: entry.n_nodes, _BATCH):
            yield batch
            if n_done == 0:
                n_done = max(1, sum(entry.n_nodes for entry in batch))
                seconds = (perf_counter() - started) / n_done * (total - n_done)
                self._tell(f"{work}, about {seconds:,.0f} s more")

    def embedded(
        self, documents: Sequence[Writable], file: IO[bytes]
    ) -> list[Writable | Exception]:
        """Return the documents with new embeddings, long ones in the file, or the error of each."""
        short = iter(
            self._parts([document for document in documents if isinstance(document, Prepared)])
        )
        return [
            next(short) if isinstance(document, Prepared) else self._long(document, file)
            for document in documents
        ]

    def _long(self, document: SpooledDocument, file: IO[bytes]) -> SpooledDocument | Exception:
        made = SpooledDocument(document.key, content_of(document.digest), document.allowed, file)
        for part in document.parts():
            (result,) = self._parts([part])
            if isinstance(result, Exception):
                return result
            made.append(result)
        return made

    def _parts(self, parts: Sequence[Prepared]) -> list[Prepared | Exception]:
        results: list[Prepared | Exception] = []
        bare: list[Prepared] = []
        for part in parts:
            nodes = tuple(node.model_copy(update={"embedding": None}) for node in part.nodes)
            if all(node.get_content(MetadataMode.NONE).strip() for node in nodes):
                bare.append(replace(part, nodes=nodes))
                results.append(bare[-1])
                continue
            results.append(
                ConfigurationError(
                    f"document {part.key.ref!r} has a node without text, whose embedding came from "
                    "elsewhere; add it to the new knowledge base with an embedding of the new model"
                )
            )
        embedded = iter(self._embedder.embedded(bare))
        return [r if isinstance(r, Exception) else next(embedded) for r in results]

    def _tell(self, estimate: str) -> None:
        if self._show:
            tqdm.write(f"Embedding {estimate}", file=sys.stderr)
