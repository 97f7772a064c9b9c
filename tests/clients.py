"""Skips, with the reason, what cannot be imported where the clients of an engine are missing."""

import importlib.util
from pathlib import Path

import pytest

# Folder of an engine, in the package and in the tests: what it imports, and the extra for it.
_CLIENTS = {
    "stores/elasticsearch": ("elasticsearch", "elasticsearch"),
    "stores/milvus": ("pymilvus", "milvus"),
    "stores/qdrant": ("qdrant_client", "qdrant"),
}


class _Unavailable(pytest.Directory):
    """A folder whose examples and tests are one skip."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip(f"{_missing(self.path)}: pip install -e '.[test]'")


class SkipWithoutClient:
    """A pytest plugin, for tests and for the examples in the package alike."""

    def pytest_collect_directory(
        self, path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        """A skipped folder where its client is missing."""
        if _missing(path):
            directory: pytest.Collector = _Unavailable.from_parent(parent, path=path)
            return directory
        return None


def _missing(path: Path) -> str:
    for folder, (client, extra) in _CLIENTS.items():
        if path.as_posix().endswith(folder) and importlib.util.find_spec(client) is None:
            return f"the package {client} is not installed (extra {extra!r})"
    return ""
