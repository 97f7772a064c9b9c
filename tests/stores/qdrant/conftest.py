"""Stores on every Qdrant there is; see places.py."""

import importlib.util

if importlib.util.find_spec("qdrant_client") is not None:  # otherwise all tests here are skipped
    from tests.stores.qdrant.fixtures import fake, kept, opened, store, url

    __all__ = ["fake", "kept", "opened", "store", "url"]
