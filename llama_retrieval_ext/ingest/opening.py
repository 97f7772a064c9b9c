"""Opens the ledger of a knowledge base, new or not, and brings it in step with the store."""

import logging
from dataclasses import replace

from llama_retrieval_ext.errors import StoreError, StoreUnavailableError
from llama_retrieval_ext.ingest.contents import Contents
from llama_retrieval_ext.ingest.journal import Journal
from llama_retrieval_ext.ingest.ledger import Ledger, strangers
from llama_retrieval_ext.ingest.manifest import FORMAT, Manifest
from llama_retrieval_ext.ingest.place import Place
from llama_retrieval_ext.ingest.writing import Writer

_logger = logging.getLogger(__name__)


def opened_ledger(place: Place, asked: Manifest, where: str) -> Ledger:
    """The ledger of a place; what a crash left half done is finished or undone.

    Args:
        place: The store and where its ledger is.
        asked: What the one who opens it says.
        where: The knowledge base, for messages.

    Raises:
        StoreFormatError: The store holds nodes that no ledger knows, or the ledger is newer.
        ModelMismatchError: It was made with another embedding model.
        ConfigurationError: It was made with other settings.
        StoreUnavailableError: It cannot be read or written.
    """
    with place.lock:
        ledger = place.ledger()
        try:
            _set_up(ledger, place, asked, where)
            # What is half done on a server may be another process's work; who writes next settles.
            if place.is_exclusive and ledger.at_rest() is None:
                writer_of(place, ledger).settle()
            _check_in_step(ledger, place, where)
            _upgrade(ledger, place, where)
        except BaseException:
            ledger.close()
            raise
    return ledger


def _set_up(ledger: Ledger, place: Place, asked: Manifest, where: str) -> None:
    if ledger.admit(asked, where):
        return
    # Without a ledger there is no telling which model made the vectors. An empty store is what
    # remains when the process dies between making the store and its ledger.
    count = place.count()
    try:
        if count:
            raise strangers(where, count)
        ledger.record(asked.as_new())
    except StoreError:
        ledger.refresh()  # somebody else may have set it up in this moment
        if not ledger.admit(asked, where):
            raise


def _upgrade(ledger: Ledger, place: Place, where: str) -> None:
    """Record what earlier formats have not: the sources of documents."""
    manifest = ledger.manifest()
    if manifest is None or manifest.format >= FORMAT:
        return
    try:
        ledger.refresh_to_write()
        Contents(place.store, ledger).fill_sources()
        ledger.record(replace(manifest, format=FORMAT))
    except StoreUnavailableError as error:  # who may only read can do so all the same
        _logger.warning(
            "%s has format %d, and cannot be brought to format %d now: each page or row of a file "
            "counts as its own source (%s)",
            where,
            manifest.format,
            FORMAT,
            error,
        )


def _check_in_step(ledger: Ledger, place: Place, where: str) -> None:
    """See whether the store was changed behind the ledger's back: restored, cleared, added to."""
    known = ledger.at_rest()
    if known is None:
        _logger.info("%s is being written to, or its last writer died", where)
        return
    held = place.count()
    if held == known or not ledger.is_current():
        return
    if held < known:
        _doubt_all(ledger, where)
    _logger.warning(
        "%s holds %d nodes, and %d were added through a knowledge base: something else has changed "
        "its store. Add the documents again to bring it in step",
        where,
        held,
        known,
    )


def _doubt_all(ledger: Ledger, where: str) -> None:
    try:
        ledger.doubt_all()
    except StoreUnavailableError as error:  # who may only read can do so all the same
        _logger.warning("%s cannot note that it lost nodes: %s", where, error)


def writer_of(place: Place, ledger: Ledger) -> Writer:
    """What writes to a place."""
    journal = Journal(ledger.database, ledger.refresh_to_write)
    return Writer(place.store, journal, lock=place.lock, flush=place.flush)
