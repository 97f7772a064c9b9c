"""What is slow, and how `pytest -m "not slow"` gets by in less than a minute.

The full run collects every test, tries as many examples as the tests ask for, and keeps its stores
on a disk. The quick one has the same assertions over fewer examples, and waits for no disk.
"""

import gc
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# What starts processes or servers, compiles, draws, or takes seconds to try much.
SLOW_PLACES = (
    "llama_retrieval_ext/evaluation/axes.py",
    "llama_retrieval_ext/evaluation/plots.py",
    "llama_retrieval_ext/evaluation/retrieval_plots.py",
    "llama_retrieval_ext/graph/neo4j_connection.py",
    "llama_retrieval_ext/stores/elasticsearch",
    "llama_retrieval_ext/stores/milvus",
    "llama_retrieval_ext/stores/qdrant",
    "tests/cli",
    "tests/evaluation/test_plots.py",
    "tests/test_readme.py",
)
_PLACES = tuple(place for place in SLOW_PLACES if "::" not in place)
_WITHIN = tuple(place for place in SLOW_PLACES if "::" in place)
# A module all of whose tests are slow.
_ALL_SLOW = re.compile(r"^pytestmark = (?:\[[^\]]*?)?pytest\.mark\.slow\b", re.MULTILINE)
# The quick run has these promises for retrievers that are no composites.
_HOSTS = re.compile(
    r"tests/retrievers/(?!test_store_retriever_contract|bm25/).*::Test\w+::"
    r"test_(threads_|many_queries_at_once_|a_query_of_ten_thousand_words_|it_works_under_uvloop"
    r"|it_is_a_leg_of_a_fusion_|it_is_a_tool_|a_query_engine_|sync_calls_work_inside_)"
)
# Of its four queries the quick run has the Chinese one and the one with a tie.
_CORPUS = "llama_retrieval_ext.testing.corpus"
_CLIENT = re.compile(r"\[(.*-)?(elasticsearch|milvus|qdrant)\b")
_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 2 * 2**30

# A shared machine is slow at times; a test that hangs is ended by pytest-timeout.
settings.register_profile("full", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)


def trials(number: int) -> int:
    """So many in the full run, a fifth of them in the quick one."""
    quick = settings.get_current_profile_name() == "quick"
    return max(5, number // 5) if quick else number


def examples(number: int) -> settings:
    """Settings of hypothesis with so many `trials`."""
    return settings(max_examples=trials(number))


class SlowTests:
    """Marks what is slow, and does not even import it where it is left out."""

    # Of the quick run; Python's own are 700, 10, 10.
    _GARBAGE = (10_000, 20, 50)

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        self._left_out = config.option.markexpr == "not slow"
        self._in_worker = hasattr(config, "workerinput")
        settings.load_profile("quick" if self._left_out else "full")

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Whether it is a file or a folder that would only be left out."""
        if not self._left_out or not collection_path.is_relative_to(self._root):
            return None
        tests = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
        slow = tests and _ALL_SLOW.search(collection_path.read_text(encoding="utf-8"))
        if os.environ.get("X_IGN"):
            return None
        return bool(slow) or self._place(collection_path) in _PLACES or None

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """The quick run does not import a module to find that it has no examples."""
        collectors = yield
        if (
            os.environ.get("X_DOC")
            or not self._left_out
            or ">>>" in file_path.read_text(encoding="utf-8", errors="ignore")
        ):
            return collectors
        return [each for each in collectors if type(each).__name__ != "DoctestModule"]

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        """Nothing of what is collected becomes garbage: looking for it takes seconds."""
        if os.environ.get("X_GCC"):
            return (yield)
        gc.disable()
        try:
            yield
        finally:
            gc.freeze()
            gc.enable()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark the slow ones; workers begin with them, so that they end at the same time."""
        for item in items:
            place = self._place(item.path)
            inside = any(place == slow or place.startswith(f"{slow}/") for slow in _PLACES)
            if (
                inside
                or item.nodeid.startswith(_WITHIN)
                or (_HOSTS.match(item.nodeid) and not os.environ.get("X_HOST"))
                or _CLIENT.search(item.nodeid)
            ):
                item.add_marker(pytest.mark.slow)
        if not os.environ.get("X_Q") and self._left_out and (corpus := sys.modules.get(_CORPUS)):
            corpus.RetrieverFixtures.queries = corpus.SAMPLE_QUERIES[1::2]
        if self._in_worker:
            items.sort(key=lambda item: item.get_closest_marker("slow") is None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Iterator[None]:
        """In the quick run there is less garbage collection; temporary folders are in memory."""
        if self._left_out and not os.environ.get("X_GCT"):
            gc.set_threshold(*self._GARBAGE)
        enough = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES
        if os.environ.get("X_TMP") or not self._left_out or not enough:
            return (yield)
        before = tempfile.tempdir
        with tempfile.TemporaryDirectory(dir=_MEMORY, ignore_cleanup_errors=True) as place:
            tempfile.tempdir = place
            try:
                return (yield)
            finally:
                tempfile.tempdir = before

    def _place(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix() if path.is_relative_to(self._root) else ""
