"""`copy_knowledge_base`: documents with nodes and embeddings, from one engine to another."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import perf_counter

from llama_retrieval_ext.errors import (
    ConfigurationError,
    GraphRequiredError,
    ModelMismatchError,
    StoreError,
    StoreUnavailableError,
)
from llama_retrieval_ext.graph.passage_links import PassageLinks
from llama_retrieval_ext.knowledge_base.changes import progress
from llama_retrieval_ext.knowledge_base.graph import GraphSide, open_graph_side, open_recorded
from llama_retrieval_ext.knowledge_base.ledger.ledger import (
    Entry,
    KnowledgeBaseConfig,
    Ledger,
    is_same_graph,
)
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, Prepared
from llama_retrieval_ext.knowledge_base.opening import graph_target, open_ledger, writer_of
from llama_retrieval_ext.knowledge_base.report import CopyReport
from llama_retrieval_ext.knowledge_base.sharing import stored_documents
from llama_retrieval_ext.knowledge_base.storage import (
    RequestedSetup,
    Storage,
    batches,
    in_memory,
    missing,
    open_storage,
)
from llama_retrieval_ext.stores.open import check_url
from llama_retrieval_ext.text.tokenizer import Tokenizer
from llama_retrieval_ext.urls import Location


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """A knowledge base to copy from or to, without an embedding model."""

    url: str
    storage: Storage
    ledger: Ledger
    config: KnowledgeBaseConfig


class Copier:
    """Copies documents batch by batch; records failures and copies the rest."""

    def __init__(self, source: CopyEnd, target: CopyEnd) -> None:
        self._source = source
        self._target = target
        self._writer = writer_of(target.storage, target.ledger)
        side = source.storage.graph
        self._graph = None if side is None else graph_target(side, source.ledger)
        self._copied = self._unchanged = self._n_nodes = 0
        self._removed = self._only_at_target = 0
        self._failures: dict[DocumentKey, Exception] = {}

    def copy(self, entries: Sequence[Entry]) -> None:
        """Copy the documents that the target does not have yet."""
        there = self._target.ledger.digests(entry.key for entry in entries)
        changed = [
            entry
            for entry, digest in zip(entries, there, strict=True)
            if not digest or digest != entry.digest
        ]
        self._unchanged += len(entries) - len(changed)
        documents = self._documents(changed)
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
                self._n_nodes += len(document.nodes)

    def copy_rest(self) -> None:
        """Copy what syncs have recorded, and the graph rows that belong to no document."""
        self._target.ledger.record_synced(self._source.ledger.synced())
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
                f"not whole in {self._target.url}{named}, and it holds {held} nodes where "
                f"{known} were written: something else writes to it, or has changed its store. "
                "Copy again, or to a new place"
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

    def _documents(self, entries: Sequence[Entry]) -> list[Prepared]:
        source = self._source
        found = stored_documents(entries, source.storage, source.ledger, where=source.url)
        self._failures |= {k: each for k, each in found.items() if isinstance(each, Exception)}
        return [each for each in found.values() if isinstance(each, Prepared)]

    def _check_dimension(self) -> None:
        recorded, copied = self._target.ledger.dimension(), self._source.config.dimension
        if recorded is None and copied is not None:
            self._target.ledger.record_dimension(copied)
        elif recorded != copied:
            raise ModelMismatchError(
                f"{self._target.url} holds embeddings of dimension {recorded}, {self._source.url} "
                f"of dimension {copied}; copy to a new place"
            )


def _name_of(key: DocumentKey) -> str:
    """Return the id of a document, with its scope if it has one."""
    scope = [f"{name} {each!r}" for name, each in (("tenant", key.tenant), ("kb", key.kb)) if each]
    return f"{key.ref} ({', '.join(scope)})" if scope else key.ref


def copy_knowledge_base(  # noqa: PLR0913 - what a copy is made of
    source_url: str,
    target_url: str,
    *,
    many_tenants: bool | None = None,
    store_params: Mapping[str, object] | None = None,
    mirror: bool = False,
    graph: str | None = None,
    show_progress: bool = True,
) -> CopyReport:
    """Copy a knowledge base to another engine without embedding it again.

    Documents that the target has in the same version are skipped: an interrupted copy continues
    where it ended, and a repeated one copies new documents. Documents that only the target has,
    such as those deleted from the source since, stay and are counted in the report; with
    ``mirror`` they are removed. The target records the source's embedding model, tokenizer and
    ``require_scope``, and the digests that identify unchanged documents. The source is only read.

    Embeddings are copied as the source's engine stores them: in single precision and, with cosine
    similarity, at length 1 (Milvus keeps their length). This changes no result.

    Args:
        source_url: URL of a knowledge base, as for `KnowledgeBase.open`.
        target_url: URL of the target, created if there is none.
        many_tenants: Setting of a new target, as for `KnowledgeBase.open`.
        store_params: Settings of a new target, as for `KnowledgeBase.open`.
        mirror: Whether documents that the source does not have are removed from the target.
        graph: URL of the target's graph; required if the source has one, which is also copied.
            If it has none, the default `PassageLinks` put the passages into the graph.
        show_progress: Whether to show a progress bar on standard error.

    Returns:
        The outcome of each document; call ``raise_for_failures()`` for an error instead.

    Raises:
        ConfigurationError: The source does not exist or is the target, one of them is in memory,
            or the target was created with another tokenizer or setting, or without
            ``require_scope``.
        GraphRequiredError: The source has a graph, and none is given for the target.
        ModelMismatchError: The target was created with another embedding model.
        StoreUnavailableError: An engine cannot be reached, or the source is being written to;
            documents copied before stay.
        StoreError: After the copy, documents are missing or incomplete in the target.

    Examples:
        >>> copy_knowledge_base("embedded:./none", "embedded:./copy")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        llama_retrieval_ext.errors.ConfigurationError: there is no knowledge base at embedded:./...

    """
    started = perf_counter()
    _check_places(source_url, target_url)
    with ExitStack() as resources:
        source = _source(source_url, resources)
        tokenizer = Tokenizer.from_dict(json.loads(source.config.tokenizer))
        setup = RequestedSetup(tokenizer, many_tenants, store_params)
        if source.storage.graph is not None and graph is None:
            raise GraphRequiredError(
                f"{source_url} has the graph {source.config.graph}, and its copy needs one, too; "
                "pass graph=, on the command line --graph",
                source.config.graph,
            )
        target = _target(target_url, source, setup, graph, resources)
        entries = source.ledger.entries()
        copier = Copier(source, target)
        copier.copy_rest()
        with progress(entries, show=show_progress, title="Copying documents") as advance:
            for batch in batches(entries):
                copier.copy(batch)
                advance(len(batch))
        copier.mirror(entries, remove=mirror)
        copier.check(entries)
    return copier.report(perf_counter() - started)


def _check_places(source_url: str, target_url: str) -> None:
    for url in (source_url, target_url):
        check_url(url)
    source, target = Location.of(source_url), Location.of(target_url)
    if target.is_in_memory:
        raise in_memory(target_url)
    if source.identity is not None and source.identity == target.identity:
        raise ConfigurationError(f"{source_url} and {target_url} are the same knowledge base")


def _source(url: str, resources: ExitStack) -> CopyEnd:
    storage = open_storage(url, RequestedSetup(must_exist=True))
    resources.callback(storage.close)
    ledger = storage.ledger()
    resources.callback(ledger.close)
    config = ledger.config()
    if config is None:
        raise missing(url)
    config.opened(config, url)  # refuses one from a newer version
    if ledger.n_nodes_at_rest() is None:
        raise StoreUnavailableError(
            f"{url} is being written to, or its last writer died. Let it finish; if it is dead, "
            "open the knowledge base and, on a server, add or delete a document: then copy again"
        )
    if config.graph:
        storage = storage.beside(open_recorded(config.graph, url), resources)
    return CopyEnd(url, storage, ledger, config)


def _target(
    url: str, source: CopyEnd, setup: RequestedSetup, graph: str | None, resources: ExitStack
) -> CopyEnd:
    copied = source.config
    storage = open_storage(url, setup)
    resources.callback(storage.close)
    if graph is not None:
        storage = storage.beside(_target_graph(graph, url, source), resources)
    requested = replace(copied, dimension=None, graph_key="")
    ledger = open_ledger(storage, requested, url, resources)
    config = ledger.config() or copied
    if config.require_scope != copied.require_scope:
        raise ConfigurationError(
            f"{url} was made with require_scope={config.require_scope}, and what is to be copied "
            f"with {copied.require_scope}; copy it to a new place"
        )
    return CopyEnd(url, storage, ledger, copied)


def _target_graph(graph: str, url: str, source: CopyEnd) -> GraphSide:
    """Open the graph of the target; copy entities from the source's graph, if any."""
    copied = source.storage.graph
    side = open_graph_side(graph, None if copied is None else PassageLinks(entities=False), url)
    if copied is None or not is_same_graph(copied.url, side.url):
        return side
    side.close()
    raise ConfigurationError(
        f"{source.url} has the graph {copied.url} itself; name another one for the copy, so that "
        "what happens to one does not happen to the other"
    )
