"""Stored documents as written again: for other principals, as known until now, or embedded anew."""

import secrets
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean
from tempfile import TemporaryFile
from time import perf_counter
from typing import IO, Final

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.utils import get_tokenizer
from tqdm import tqdm  # type: ignore[import-untyped]

from llama_retrieval_ext.dates import KNOWN_TO, now
from llama_retrieval_ext.embeddings.recorded import model_record
from llama_retrieval_ext.embeddings.resolve import (
    embed_model_dimension,
    embed_model_name,
    resolve_embed_model,
)
from llama_retrieval_ext.errors import ConfigurationError, StoreError
from llama_retrieval_ext.knowledge_base.documents import batched
from llama_retrieval_ext.knowledge_base.ledger.config import KnowledgeBaseConfig
from llama_retrieval_ext.knowledge_base.ledger.journal import WriteOutcome
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    HISTORY,
    DocumentKey,
    Prepared,
    SpooledDocument,
    Writable,
    content_of,
    version_of,
)
from llama_retrieval_ext.knowledge_base.ledger.records import Entry
from llama_retrieval_ext.knowledge_base.preparation import Embedder
from llama_retrieval_ext.knowledge_base.storage import Storage, batches
from llama_retrieval_ext.knowledge_base.write import Writer
from llama_retrieval_ext.wording import counted

# Nodes of a document that are in memory at a time.
_GROUP: Final = 1024
# Nodes per batch of a copy: an interrupted one repeats at most one, and the first gives the time.
_BATCH: Final = 100


def stored_documents(
    entries: Sequence[Entry], storage: Storage, file: IO[bytes]
) -> dict[DocumentKey, Writable | StoreError]:
    """Return stored documents as they were written, or an error for an incomplete one.

    The nodes of long ones are read in groups, and kept in the file.
    """
    ids = storage.ledger.node_ids(entry.key for entry in entries)
    target = storage.graph_target()

    def read(ids: Sequence[str]) -> tuple[Mapping[str, BaseNode], Mapping[str, str]]:
        """Return nodes by id, and their rows in the graph."""
        nodes = {node.node_id: node for node in storage.nodes(ids)}
        return nodes, target.rows_of(list(nodes)) if target is not None and nodes else {}

    short = [entry.key for entry in entries if entry.n_nodes <= _GROUP]
    together = read([node_id for key in short for node_id in ids.get(key, ())])
    documents: dict[DocumentKey, Writable | StoreError] = {}
    for key, digest, _, n_nodes, allowed in entries:
        node_ids = ids.get(key, [])
        # A missing digest counts as changed; a random one matches no document.
        version = digest or secrets.token_hex(16)
        document: Writable
        if n_nodes <= _GROUP:
            document = _part(key, version, node_ids, *together)
        else:
            document = SpooledDocument(key, content_of(version), allowed, file)
            for start in range(0, len(node_ids), _GROUP):
                group = node_ids[start : start + _GROUP]
                document.append(_part(key, version, group, *read(group)))
        documents[key] = document
        n_found = len(document.node_ids)
        if n_found != n_nodes:
            documents[key] = StoreError(
                f"the store at {storage.url} has {n_found} of its {counted(n_nodes, 'node')}; if "
                "it is not being written to, delete the document there and add it again"
            )
    return documents


def _part(
    key: DocumentKey,
    version: str,
    ids: Sequence[str],
    nodes: Mapping[str, BaseNode],
    rows: Mapping[str, str],
) -> Prepared:
    """Return those of the nodes of a document that are there."""
    stored = tuple(nodes[node_id] for node_id in ids if node_id in nodes)
    extracted = {node_id: rows[node_id] for node_id in ids if node_id in nodes and node_id in rows}
    return Prepared(key, version, stored, extracted)


def share_documents(
    storage: Storage,
    writer: Writer,
    entries: Sequence[Entry],
    allowed: Mapping[DocumentKey, Sequence[str]],
) -> dict[DocumentKey, WriteOutcome | Exception]:
    """Write stored documents again, visible to these principals; return the outcome of each.

    Those that another process has changed since they were read are OUTDATED.
    """
    outcomes: dict[DocumentKey, WriteOutcome | Exception] = {}
    for batch in batches(entries):
        with TemporaryFile() as file:
            stored = stored_documents(batch, storage, file)
            whole: list[Writable] = []
            for entry in batch:
                document = stored[entry.key]
                if isinstance(document, StoreError):
                    outcomes[entry.key] = document
                else:
                    whole.append(document.shared(allowed[entry.key], replaces=entry.digest))
            for document, outcome in zip(whole, writer.write(whole), strict=True):
                outcomes[document.key] = outcome
    return outcomes


def share_keys(
    storage: Storage, writer: Writer, allowed: Mapping[DocumentKey, Sequence[str]]
) -> dict[DocumentKey, WriteOutcome | Exception]:
    """Share the documents with these keys; see `share_documents`.

    Those that were deleted meanwhile, or that another process is writing, are left out.
    """
    with writer.lock:
        ids = storage.ledger.node_ids(allowed)
        digests = storage.ledger.digests(allowed)
        entries = [
            Entry(key, digest, "", max(1, len(ids.get(key, ()))))
            for key, digest in zip(allowed, digests, strict=True)
            if digest is not None
        ]
        return share_documents(storage, writer, entries, allowed)


@contextmanager
def copies_until_now(storage: Storage, keys: Sequence[DocumentKey]) -> Generator[list[Writable]]:
    """Yield copies of stored documents that say until when they were known, ready to be written.

    A copy is a document of its own, whose key no listing shows, with the nodes under new ids. It is
    written before the change, so that a crash between both leaves nothing unknown.
    """
    stored = storage.ledger.read(key for key in keys if HISTORY not in key.ref)
    entries = [record.entry for record in stored.values()]
    moment = now()
    with TemporaryFile() as file, TemporaryFile() as copied:
        documents = stored_documents(entries, storage, file)
        copies: list[Writable] = []
        for key, document in documents.items():
            if isinstance(document, StoreError):
                raise document
            new = key._replace(ref=f"{key.ref}{HISTORY}{moment}")
            digest = version_of(f"{content_of(document.digest)}-{moment}", document.allowed)
            parts = (_known_until(moment, part, new, digest) for part in document.parts())
            if isinstance(document, Prepared):
                copies += parts
                continue
            spooled = SpooledDocument(new, content_of(digest), document.allowed, copied)
            for part in parts:
                spooled.append(part)
            copies.append(spooled)
        yield copies


def _known_until(moment: str, part: Prepared, key: DocumentKey, digest: str) -> Prepared:
    """Return the nodes of a document as they were known until a moment."""
    nodes = tuple(
        node.model_copy(
            update={
                "id_": f"{node.node_id}{HISTORY}{moment}",
                "metadata": {**node.metadata, KNOWN_TO: moment},
                "excluded_embed_metadata_keys": [*node.excluded_embed_metadata_keys, KNOWN_TO],
                "excluded_llm_metadata_keys": [*node.excluded_llm_metadata_keys, KNOWN_TO],
            }
        )
        for node in part.nodes
    )
    return replace(part, key=key, digest=digest, nodes=nodes, rows={})


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
