"""`copy_knowledge_base`: documents with nodes, to another engine or another embedding model."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from tempfile import TemporaryFile
from time import perf_counter
from typing import IO, Final

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode

from llama_retrieval_ext.checks import checked_call
from llama_retrieval_ext.errors import (
    ConfigurationError,
    GraphRequiredError,
    ModelMismatchError,
    StoreError,
    StoreUnavailableError,
)
from llama_retrieval_ext.graph.passage_links import PassageLinks
from llama_retrieval_ext.knowledge_base.graph import GraphSide, open_graph_side, open_recorded
from llama_retrieval_ext.knowledge_base.ledger.config import KnowledgeBaseConfig, is_same_graph
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, Writable
from llama_retrieval_ext.knowledge_base.ledger.records import Entry
from llama_retrieval_ext.knowledge_base.opening import set_up, writer_of
from llama_retrieval_ext.knowledge_base.preparation import progress
from llama_retrieval_ext.knowledge_base.report import CopyReport
from llama_retrieval_ext.knowledge_base.sharing import Reembedding, stored_documents
from llama_retrieval_ext.knowledge_base.storage import (
    RequestedSetup,
    Storage,
    batches,
    in_memory,
    missing,
    open_storage,
)
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.stores.open import check_url
from llama_retrieval_ext.text.tokenizer import Tokenizer
from llama_retrieval_ext.urls import Location
from llama_retrieval_ext.wording import counted


class Copier:
    """Copies documents batch by batch; records failures and copies the rest."""

    def __init__(
        self,
        source: Storage,
        target: Storage,
        *,
        dimension: int | None,
        reembedding: Reembedding | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._dimension = dimension  # of the source
        self._reembedding = reembedding
        self._writer = writer_of(target)
        self._graph = source.graph_target()
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
        if self._graph is not None and self._target.graph is not None:
            self._graph.copy_unsaid_to(self._target.graph.graph)

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
        held = self._target.store.count()
        recorded = self._target.ledger.n_nodes_at_rest(exact=True)
        if recorded is None:
            raise StoreUnavailableError(
                f"{self._target.url} is being written to, or its last writer died; copy again when "
                "nobody writes to it"
            )
        if short or held != recorded:
            named = f", such as {short[0]!r}" if short else ""
            raise StoreError(
                f"after copying {self._source.url}, {len(short)} of {len(expected)} documents are "
                f"not whole in {self._target.url}{named}, and it holds "
                f"{counted(held, 'node')} where {recorded} were written: something else "
                "writes to it, or has changed its store. Copy again, or to a new place"
            )

    def report(self, seconds: float) -> CopyReport:
        """Return the outcome of each document."""
        return CopyReport(
            copied=self._copied,
            unchanged=self._unchanged,
            removed=self._removed,
            only_at_target=self._only_at_target,
            failures=self._named_failures(),
            n_nodes=self._n_nodes,
            seconds=seconds,
        )

    def _documents(self, entries: Sequence[Entry], file: IO[bytes]) -> list[Writable]:
        """Return documents as they are to be written, long ones in the file; record failures."""
        stored = stored_documents(entries, self._source, file)
        results: dict[DocumentKey, Writable | Exception] = {**stored}
        if self._reembedding is not None:
            whole = [
                document for document in stored.values() if not isinstance(document, StoreError)
            ]
            for document, result in zip(
                whole, self._reembedding.embedded(whole, file), strict=True
            ):
                results[document.key] = result
        self._failures |= {key: r for key, r in results.items() if isinstance(r, Exception)}
        return [result for result in results.values() if not isinstance(result, Exception)]

    def _named_failures(self) -> dict[str, Exception]:
        """Return the failures by the id of the document, with its scope if it has one."""
        failures: dict[str, Exception] = {}
        for key, error in self._failures.items():
            names = (("tenant", key.tenant), ("kb", key.kb))
            scope = ", ".join(f"{name} {value!r}" for name, value in names if value)
            failures[f"{key.ref} ({scope})" if scope else key.ref] = error
        return failures

    def _check_dimension(self) -> None:
        recorded, copied = self._target.ledger.dimension(), self._dimension
        if self._reembedding is not None:
            copied = self._reembedding.dimension
        if recorded is None and copied is not None:
            self._target.record_dimension(copied)
        elif recorded != copied:
            raise ModelMismatchError(
                f"{self._target.url} holds embeddings of dimension {recorded}, {self._source.url} "
                f"of dimension {copied}; copy to a new place"
            )


# Nodes whose tokens are counted for an estimate.
_COUNTED: Final = 100


@checked_call
def copy_knowledge_base(  # noqa: PLR0913 - what a copy is made of
    source_url: str,
    target_url: str,
    *,
    many_tenants: bool | None = None,
    store_params: Mapping[str, object] | None = None,
    mirror: bool = False,
    graph: str | None = None,
    show_progress: bool = True,
    embed_model: str | BaseEmbedding | None = None,
    schema: Schema | None = None,
) -> CopyReport:
    """Copy a knowledge base to another engine, or to another embedding model.

    Documents that the target has in the same version are skipped: an interrupted copy continues
    where it ended, and a repeated one copies new documents. Documents that only the target has,
    such as those deleted from the source since, stay and are counted in the report; with
    ``mirror`` they are removed. The target records the source's embedding model, tokenizer and
    ``require_scope``, and the digests that identify unchanged documents. The source is only read.

    Embeddings are copied as the source's engine stores them: in single precision and, with cosine
    similarity, at length 1 (Milvus keeps their length). This changes no result.

    With another ``embed_model`` the stored texts are embedded anew: no file is read, nothing is
    split or extracted. Nodes and tokens are shown before, the time after the first hundred nodes.
    `evaluation.compare_models` compares both models then. The ranking rules of each scope that has
    some are copied, too.

    Args:
        source_url: URL of a knowledge base, as for `KnowledgeBase.open`.
        target_url: URL of the target, created if there is none.
        many_tenants: Setting of a new target, as for `KnowledgeBase.open`.
        store_params: Settings of a new target, as for `KnowledgeBase.open`.
        mirror: Whether documents that the source does not have are removed from the target.
        graph: URL of the target's graph; required if the source has one, which is also copied.
            If it has none, the default `PassageLinks` put the passages into the graph.
        show_progress: Whether to show a progress bar, and an estimate, on standard error.
        embed_model: Model of the target, as for `KnowledgeBase.open`; None for the source's. The
            source's own name copies its embeddings.
        schema: Fields of the target, as for `KnowledgeBase.open`; None for the source's.

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
        source, config = _source(source_url, resources)
        if schema is not None:
            config = replace(config, schema=json.dumps(schema.to_dict()))
        if source.graph is not None and graph is None:
            raise GraphRequiredError(
                f"{source_url} has the graph {config.graph}, and its copy needs one, too; "
                "pass graph=",
                config.graph,
            )
        reembedding = None if embed_model is None else Reembedding(embed_model, show=show_progress)
        if reembedding is not None and reembedding.name == config.embed_model:
            reembedding = None  # the source has this one
        requested = config if reembedding is None else reembedding.config(config)
        tokenizer = Tokenizer.from_dict(json.loads(config.tokenizer))
        setup = RequestedSetup(tokenizer, many_tenants, store_params)
        side = None if graph is None else _target_graph(graph, target_url, source)
        target = _target(target_url, requested, setup, side, resources)
        entries = source.ledger.entries()
        copier = Copier(source, target, dimension=config.dimension, reembedding=reembedding)
        copier.copy_rest()
        changed = copier.changed(entries)
        parts = batches(changed)
        if reembedding is not None:
            parts = reembedding.batches(changed, _sample(source, changed, _COUNTED))
        with progress(changed, show=show_progress, title="Copying documents") as advance:
            for batch in parts:
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


def _sample(source: Storage, entries: Sequence[Entry], count: int) -> list[BaseNode]:
    """Return up to about `count` nodes, from documents evenly apart."""
    chosen = entries[:: len(entries) // count + 1]
    node_ids = source.ledger.node_ids(entry.key for entry in chosen)
    ids = [*chain.from_iterable(node_ids.values())]
    return list(source.nodes(ids[:: len(ids) // count + 1]))


def _source(url: str, resources: ExitStack) -> tuple[Storage, KnowledgeBaseConfig]:
    storage = open_storage(url, RequestedSetup(must_exist=True, may_create=False))
    resources.callback(storage.close)
    config = storage.ledger.config()
    if config is None:
        raise missing(url, to_create=False)
    config.opened(config, url)  # refuses one from a newer version
    if storage.ledger.n_nodes_at_rest() is None:
        raise StoreUnavailableError(
            f"{url} is being written to, or its last writer died. Let it finish; if it is dead, "
            "open the knowledge base and, on a server, add or delete a document: then copy again"
        )
    if config.graph:
        storage = storage.beside(open_recorded(config.graph, url), resources)
    return storage, config


def _target(
    url: str,
    requested: KnowledgeBaseConfig,
    setup: RequestedSetup,
    graph: GraphSide | None,
    resources: ExitStack,
) -> Storage:
    storage = open_storage(url, setup)
    resources.callback(storage.close)
    if graph is not None:
        storage = storage.beside(graph, resources)
    config = set_up(storage, replace(requested, dimension=None, graph_key=""))
    if config.require_scope != requested.require_scope:
        raise ConfigurationError(
            f"{url} was made with require_scope={config.require_scope}, and what is to be copied "
            f"with {requested.require_scope}; copy it to a new place"
        )
    return storage


def _target_graph(graph: str, url: str, source: Storage) -> GraphSide:
    """Open the graph of the target; copy entities from the source's graph, if any."""
    copied = source.graph
    side = open_graph_side(graph, None if copied is None else PassageLinks(entities=False), url)
    if copied is None or not is_same_graph(copied.url, side.url):
        return side
    side.close()
    raise ConfigurationError(
        f"{source.url} has the graph {copied.url} itself; name another one for the copy, so that "
        "what happens to one does not happen to the other"
    )
