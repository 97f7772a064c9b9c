"""Removes a knowledge base.

Noted in the ledger that it is being removed → the nodes → the ledger. Whoever dies in between
leaves a knowledge base that cannot be opened, says why, and can be removed again; who dies earlier
or later leaves all of it, or nothing. In a folder the ledger's file goes before the store's own: a
crash between these two leaves an empty store without a ledger, which is no knowledge base.
"""

from dataclasses import replace

from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.ingest.ledger import Ledger
from llama_retrieval_ext.ingest.place import Setup, missing, open_place


def remove_knowledge_base(url: str) -> None:
    """Remove a knowledge base; see `KnowledgeBase.remove`."""
    place = open_place(url, Setup(must_exist=True))
    try:
        with place.lock:  # who opens it holds it, too
            if place.is_shared():
                raise StoreUnavailableError(f"{url} is open in this process; close it first")
            ledger = place.ledger()
            try:
                _note(ledger, url)
            finally:
                ledger.close()
            place.remove()
    finally:
        place.close()


def _note(ledger: Ledger, url: str) -> None:
    manifest = ledger.manifest()
    if manifest is None:
        raise missing(url)
    manifest.check_format(url)
    if not manifest.removing:
        ledger.check_unwritten(url)
        ledger.record(replace(manifest, removing=True))
