"""Temporary files in memory, and the quick run, `pytest -m "not slow"`: fewer trials and imports.

Slow tests are marked where they stand. Marked here is what has no line of its own for a mark:
examples in the package, parameters that are named after an engine's client, and the promises of
the contract classes that the quick run checks for basic retrievers only.
"""

import gc
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from multiprocessing.util import get_temp_dir
from pathlib import Path
from types import FunctionType
from zlib import crc32

import pytest
from _pytest.doctest import DoctestModule
from _pytest.mark.structures import ParameterSet
from hypothesis import settings

# Examples that draw, or import the client or the framework of a server.
_SLOW_EXAMPLES = (
    "llama_retrieval_ext/evaluation/plots.py",
    "llama_retrieval_ext/evaluation/retrieval_plots.py",
    "llama_retrieval_ext/graph/neo4j_connection.py",
    "llama_retrieval_ext/serve/entry.py",
    "llama_retrieval_ext/stores/elasticsearch",
    "llama_retrieval_ext/stores/milvus",
    "llama_retrieval_ext/stores/qdrant",
)
_CLIENT = re.compile(r"\[(.*-)?(elasticsearch|milvus|qdrant)\b")
# A quarter of the time of the contracts; the quick run has them for basic retrievers and BM25.
_PROMISES = re.compile(
    r"tests/retrievers/(?!test_single_search\.|bm25/).*::Test\w+::"
    r"test_(threads_|many_queries_at_once_|a_query_of_ten_thousand_words_|it_works_under_uvloop"
    r"|it_is_a_leg_of_a_fusion_|it_is_a_tool_|a_query_engine_|sync_calls_work_inside_)"
)
# Promises of other contracts that take a third of a second, or more.
_LONG_PROMISES = re.compile(
    r".*::Test\w+::test_(facets_are_those_counted_by_hand|nothing_that_only_hidden_documents_say_"
    r"|filters_in_words_are_of_the_values_|a_search_with_filters_in_words_"
    r"|pages_are_those_of_a_frozen_|a_new_field_is_indexed_)"
)
_CONTRACT = "llama_retrieval_ext.testing.isolation_contract"
_MODULE_MARK = re.compile(r"^pytestmark = (?:\[[^\]]*?)?pytest\.mark\.slow\b", re.MULTILINE)
# New stores wait for the disk: four folders took 150 s with files in memory, else over 400 s.
_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 6 * 2**30

# How many times as many trials the fuzzers make: for a long run, see tests/benchmarks/README.md.
MORE_TRIALS = "LLAMA_RETRIEVAL_TRIALS"
# A shared machine is slow at times; a test that hangs is ended by pytest-timeout.
settings.register_profile("full", deadline=None, max_examples=50)
settings.register_profile("quick", deadline=None, max_examples=10)


def trials(number: int) -> int:
    """So many in the full run, a fifth of them in the quick one, more as `MORE_TRIALS` says."""
    quick = settings.get_current_profile_name() == "quick"
    return max(5, number // 5) if quick else number * int(os.environ.get(MORE_TRIALS, "1"))


def in_turn(*names: str) -> list[ParameterSet]:
    """Parameters, of which each test gets one, by its own name; all of them as `MORE_TRIALS` says.

    So each promise is tested on one of the servers, and each server with its share of the promises.
    """
    return [
        pytest.param(name, marks=[pytest.mark.slow, pytest.mark.in_turn(place, len(names))])
        for place, name in enumerate(names)
    ]


def is_async(request: pytest.FixtureRequest) -> bool:
    """Whether a test makes its calls on an event loop: about every second one, by its name.

    Both ways run one plan, and contracts ask each retriever in both: a test of what is found needs
    one of them. The long run, as `MORE_TRIALS` says, takes the other for each.
    """
    name = request.node.nodeid.partition("[")[0]
    return bool(crc32(name.encode()) % 2) ^ (MORE_TRIALS in os.environ)


def _is_slow_promise(name: str) -> bool:
    return bool(_PROMISES.match(name) or _LONG_PROMISES.match(name))


def _has_its_turn(item: pytest.Item) -> bool:
    turn = item.get_closest_marker("in_turn")
    if turn is None or MORE_TRIALS in os.environ:
        return True
    place, count = turn.args
    return bool(crc32(item.nodeid.partition("[")[0].encode()) % count == place)


def examples(number: int) -> settings:
    """Settings of hypothesis with so many `trials`."""
    return settings(max_examples=trials(number))


class SlowTests:
    """A pytest plugin that marks slow tests, and in the quick run does not import their modules."""

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        self._is_quick = config.option.markexpr == "not slow"
        self._is_worker = hasattr(config, "workerinput")
        settings.load_profile("quick" if self._is_quick else "full")
        if self._is_worker:
            from tests.workers import BriefReports  # noqa: PLC0415 - has pytest-xdist

            config.pluginmanager.register(BriefReports())
        if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES:
            get_temp_dir()  # that of multiprocessing is removed after pytest has ended
            tempfile.tempdir = tempfile.mkdtemp(prefix="llama-retrieval-", dir=_MEMORY)

    def pytest_unconfigure(self) -> None:
        """Remove the temporary files."""
        if tempfile.tempdir and _MEMORY in Path(tempfile.tempdir).parents:
            shutil.rmtree(tempfile.tempdir, ignore_errors=True)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out a module whose tests are all slow: clients of servers import for seconds."""
        if not self._is_quick:
            return None
        name = collection_path.name
        is_test = name.startswith("test_") and name.endswith(".py")
        all_slow = is_test and _MODULE_MARK.search(collection_path.read_text(encoding="utf-8"))
        return bool(all_slow) or self._is_slow_example(collection_path) or None

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """Leave out docstrings without examples: importing their modules takes 2 s."""
        found = yield
        if found and ">>>" not in file_path.read_text(encoding="utf-8"):
            return [each for each in found if not isinstance(each, DoctestModule)]
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(
        self, collector: pytest.Collector, name: str, obj: object
    ) -> list[pytest.Item] | None:
        """Leave out a slow class or function: a thousand items take a second of each worker."""
        if not self._is_quick or not isinstance(obj, type | FunctionType):
            return None
        marks = getattr(obj, "pytestmark", None)
        is_slow = isinstance(marks, list) and any(mark.name == "slow" for mark in marks)
        return [] if is_slow or _is_slow_promise(f"{collector.nodeid}::{name}") else None

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        """Nothing of what is collected is garbage: to look for it takes 6 s in addition to 9 s."""
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()
            gc.enable()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark what has no mark of its own; workers begin with what takes longest."""
        items[:] = [item for item in items if _has_its_turn(item)]
        for item in items:
            name = item.nodeid
            is_slow = _CLIENT.search(name) or _is_slow_promise(name)
            if is_slow or self._is_slow_example(item.path):
                item.add_marker(pytest.mark.slow)
        if self._is_quick and (contract := sys.modules.get(_CONTRACT)):
            # The Chinese query and the one with a tie: with all four, contracts take 20 % longer.
            contract.RetrieverFixtures.queries = contract.SAMPLE_QUERIES[1::2]
        if self._is_worker:
            from tests.workers import sort_longest_first  # noqa: PLC0415 - has pytest-xdist

            sort_longest_first(items)

    def _is_slow_example(self, path: Path) -> bool:
        return path.as_posix().removeprefix(f"{self._root.as_posix()}/").startswith(_SLOW_EXAMPLES)
