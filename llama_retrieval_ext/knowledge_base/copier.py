"""`Copier`: copies documents batch by batch; `Reembedding`: embeds them anew."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from tempfile import TemporaryFile
from time import perf_counter
from typing import IO, Final

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.utils import get_tokenizer
from tqdm import tqdm  # type: ignore[import-untyped]

from llama_retrieval_ext.embeddings.recorded import model_record
from llama_retrieval_ext.embeddings.resolve import (
    embed_model_dimension,
    embed_model_name,
    resolve_embed_model,
)
from llama_retrieval_ext.errors import (
    ConfigurationError,
    ModelMismatchError,
    StoreError,
    StoreUnavailableError,
)
from llama_retrieval_ext.knowledge_base.documents import batched
from llama_retrieval_ext.knowledge_base.graph import graph_target
from llama_retrieval_ext.knowledge_base.ledger.config import KnowledgeBaseConfig
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    Prepared,
    SpooledDocument,
    Writable,
    content_of,
)
from llama_retrieval_ext.knowledge_base.ledger.records import Entry
from llama_retrieval_ext.knowledge_base.opening import writer_of
from llama_retrieval_ext.knowledge_base.preparation import Embedder
from llama_retrieval_ext.knowledge_base.report import CopyReport
from llama_retrieval_ext.knowledge_base.sharing import stored_documents
from llama_retrieval_ext.knowledge_base.storage import Storage, batches
from llama_retrieval_ext.wording import counted

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
        bare = [_bare(part) for part in parts if _has_text(part)]
        results = iter(self._embedder.embedded(bare))
        return [next(results) if _has_text(part) else _textless(part) for part in parts]

    def _tell(self, estimate: str) -> None:
        if self._show:
            tqdm.write(f"Embedding {estimate}", file=sys.stderr)


def _has_text(document: Prepared) -> bool:
    return all(node.get_content(MetadataMode.NONE).strip() for node in document.nodes)


def _bare(document: Prepared) -> Prepared:
    bare = [node.model_copy(update={"embedding": None}) for node in document.nodes]
    return replace(document, nodes=tuple(bare))


def _textless(document: Prepared) -> ConfigurationError:
    return ConfigurationError(
        f"document {document.key.ref!r} has a node without text, whose embedding came from "
        "elsewhere; add it to the new knowledge base with an embedding of the new model"
    )


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """A knowledge base to copy from or to, without an embedding model."""

    url: str
    storage: Storage
    ledger: Ledger
    config: KnowledgeBaseConfig

    def sample(self, entries: Sequence[Entry], count: int) -> list[BaseNode]:
        """Return up to about `count` nodes, from documents evenly apart."""
        chosen = entries[:: len(entries) // count + 1]
        ids = [
            id_
            for node_id in self.ledger.node_ids(each.key for each in chosen).values()
            for id_ in node_id
        ]
        return list(self.storage.nodes(ids[:: len(ids) // count + 1]))


class Copier:
    """Copies documents batch by batch; records failures and copies the rest."""

    def __init__(
        self, source: CopyEnd, target: CopyEnd, reembedding: Reembedding | None = None
    ) -> None:
        self._source = source
        self._target = target
        self._reembedding = reembedding
        self._writer = writer_of(target.storage, target.ledger)
        side = source.storage.graph
        self._graph = None if side is None else graph_target(side, source.ledger)
        self._copied = self._unchanged = self._n_nodes = 0
        self._removed = self._only_at_target = 0
        self._failures: dict[DocumentKey, Exception] = {}

    def changed(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the documents that the target does not have yet."""
        there = self._target.ledger.digests(entry.key for entry in entries)
        changed = [
            entry
            for entry, digest in zip(entries, there, strict=True)
            if not digest or digest != entry.digest
        ]
        self._unchanged = len(entries) - len(changed)
        return changed

    def copy(self, entries: Sequence[Entry]) -> None:
        """Copy documents."""
        with TemporaryFile() as file:
            documents = self._documents(entries, file)
            if not documents:
                return
            with self._writer.lock:
                self._check_dimension()
                outcomes = self._writer.write(documents)
        for document, outcome in zip(documents, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._failures[document.key] = outcome
            else:
                self._copied += 1
                self._n_nodes += len(document.node_ids)

    def copy_rest(self) -> None:
        """Copy what syncs have recorded, ranking rules, and graph rows that no document has."""
        self._target.ledger.record_synced(self._source.ledger.synced())
        for scope, rules in self._source.ledger.rankings().items():
            self._target.ledger.record_ranking(scope, rules)
        side = self._target.storage.graph
        if self._graph is not None and side is not None:
            self._graph.copy_unsaid_to(side.graph)

    def mirror(self, entries: Sequence[Entry], *, remove: bool) -> None:
        """Remove or count documents that only the target has."""
        keys = {entry.key for entry in entries}
        extra = [entry for entry in self._target.ledger.entries() if entry.key not in keys]
        if not remove:
            self._only_at_target = len(extra)
            return
        for batch in batches(extra):
            self._writer.delete([entry.key for entry in batch])
            self._removed += len(batch)

    def check(self, entries: Sequence[Entry]) -> None:
        """Raise unless the target has all documents, except those that failed."""
        there = {entry.key: entry.n_nodes for entry in self._target.ledger.entries()}
        expected = [entry for entry in entries if entry.key not in self._failures]
        short = [entry.key.ref for entry in expected if there.get(entry.key) != entry.n_nodes]
        held, known = self._target.storage.count(), self._target.ledger.n_nodes_at_rest(exact=True)
        if known is None:
            raise StoreUnavailableError(
                f"{self._target.url} is being written to, or its last writer died; copy again when "
                "nobody writes to it"
            )
        if short or held != known:
            named = f", such as {short[0]!r}" if short else ""
            raise StoreError(
                f"after copying {self._source.url}, {len(short)} of {len(expected)} documents are "
                f"not whole in {self._target.url}{named}, and it holds "
                f"{counted(held, 'node')} where {known} were written: something else "
                "writes to it, or has changed its store. Copy again, or to a new place"
            )

    def report(self, seconds: float) -> CopyReport:
        """Return the outcome of each document."""
        return CopyReport(
            copied=self._copied,
            unchanged=self._unchanged,
            removed=self._removed,
            only_at_target=self._only_at_target,
            failures={_name_of(key): error for key, error in self._failures.items()},
            n_nodes=self._n_nodes,
            seconds=seconds,
        )

    def _documents(self, entries: Sequence[Entry], file: IO[bytes]) -> list[Writable]:
        """Return documents as they are to be written, long ones in the file; record failures."""
        source = self._source
        found = stored_documents(entries, source.storage, source.ledger, file, where=source.url)
        results: dict[DocumentKey, Writable | Exception] = {**found}
        if self._reembedding is not None:
            whole = [each for each in found.values() if not isinstance(each, StoreError)]
            embedded = self._reembedding.embedded(whole, file)
            results |= {each.key: one for each, one in zip(whole, embedded, strict=True)}
        self._failures |= {k: each for k, each in results.items() if isinstance(each, Exception)}
        return [result for result in results.values() if not isinstance(result, Exception)]

    def _check_dimension(self) -> None:
        recorded, copied = self._target.ledger.dimension(), self._source.config.dimension
        if self._reembedding is not None:
            copied = self._reembedding.dimension
        if recorded is None and copied is not None:
            self._target.storage.record_dimension(self._target.ledger, copied)
        elif recorded != copied:
            raise ModelMismatchError(
                f"{self._target.url} holds embeddings of dimension {recorded}, {self._source.url} "
                f"of dimension {copied}; copy to a new place"
            )


def _name_of(key: DocumentKey) -> str:
    """Return the id of a document, with its scope if it has one."""
    scope = [f"{name} {each!r}" for name, each in (("tenant", key.tenant), ("kb", key.kb)) if each]
    return f"{key.ref} ({', '.join(scope)})" if scope else key.ref
