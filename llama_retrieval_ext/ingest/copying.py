"""Copies a knowledge base from one engine to another, with its embeddings."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from time import perf_counter

from llama_retrieval_ext.errors import ConfigurationError, StoreUnavailableError
from llama_retrieval_ext.ingest.batching import batches
from llama_retrieval_ext.ingest.copier import Base, Copier
from llama_retrieval_ext.ingest.copy_report import CopyReport
from llama_retrieval_ext.ingest.location import Location
from llama_retrieval_ext.ingest.manifest import Manifest
from llama_retrieval_ext.ingest.opening import opened_ledger
from llama_retrieval_ext.ingest.place import Setup, in_memory, missing, open_place
from llama_retrieval_ext.ingest.progress import progress
from llama_retrieval_ext.stores.opening import check_url
from llama_retrieval_ext.text.tokenizer import Tokenizer


def copy_knowledge_base(
    source_url: str,
    target_url: str,
    *,
    many_tenants: bool | None = None,
    store_params: Mapping[str, object] | None = None,
    mirror: bool = False,
    show_progress: bool = True,
) -> CopyReport:
    """Copy a knowledge base to another engine, without embedding anything again.

    Documents that the target has already, just so, are left alone: a copy that was interrupted goes
    on where it ended, and one that is repeated brings what is new. Documents that only the target
    has, such as those that were deleted in the source since, stay, and are counted in the report;
    with ``mirror`` they are removed, and the target then has what the source has. The target
    remembers the source's embedding model, tokenizer and ``require_scope``, and for which documents
    there is nothing to do when they are added again. The source is only read.

    Embeddings are those that the source's engine keeps: single precision and, where it compares by
    cosine, at length 1 (Milvus keeps their length), which changes no result.

    Args:
        source_url: A knowledge base, as `KnowledgeBase.open` takes it.
        target_url: Another one, made if there is none.
        many_tenants: As for `KnowledgeBase.open`, where the target is made.
        store_params: Likewise.
        mirror: Whether documents that the source does not have are removed from the target.
        show_progress: Whether there is a progress bar, on standard error.

    Returns:
        What came of the documents; ``raise_for_failures()`` if you would rather have an error.

    Raises:
        ConfigurationError: There is no such source, it is the target, one is in memory, or the
            target was made with another tokenizer or setting, or without ``require_scope``.
        ModelMismatchError: The target was made with another embedding model.
        StoreUnavailableError: An engine cannot be reached, or the source is being written to; what
            was copied before stays.
        StoreError: In the end the target does not hold what it should.

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
        tokenizer = Tokenizer.from_dict(json.loads(source.manifest.tokenizer))
        setup = Setup(tokenizer, many_tenants, store_params)
        target = _target(target_url, source.manifest, setup, resources)
        entries = source.ledger.entries()
        copier = Copier(source, target)
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


def _source(url: str, resources: ExitStack) -> Base:
    place = open_place(url, Setup(must_exist=True))
    resources.callback(place.close)
    ledger = place.ledger()
    resources.callback(ledger.close)
    manifest = ledger.manifest()
    if manifest is None:
        raise missing(url)
    manifest.opened(manifest, url)  # refuses one from a newer version
    ledger.refresh()
    if ledger.at_rest() is None:
        raise StoreUnavailableError(
            f"{url} is being written to, or its last writer died. Let it finish; if it is dead, "
            "open the knowledge base and, on a server, add or delete a document: then copy again"
        )
    return Base(url, place, ledger, manifest)


def _target(url: str, copied: Manifest, setup: Setup, resources: ExitStack) -> Base:
    place = open_place(url, setup)
    resources.callback(place.close)
    ledger = opened_ledger(place, replace(copied, dimension=None, params=place.params), url)
    resources.callback(ledger.close)
    manifest = ledger.manifest() or copied
    if manifest.require_scope != copied.require_scope:
        raise ConfigurationError(
            f"{url} was made with require_scope={manifest.require_scope}, and what is to be copied "
            f"with {copied.require_scope}; copy it to a new place"
        )
    return Base(url, place, ledger, copied)
