"""Stores on every Qdrant there is; see places.py."""

import importlib.util

# Without the extra there is nothing to import.
if importlib.util.find_spec("qdrant_client") is None:
    collect_ignore_glob = ["*.py"]
else:
    from tests.stores.qdrant.fixtures import fake, kept, opened, store, url

    __all__ = ["fake", "kept", "opened", "store", "url"]
