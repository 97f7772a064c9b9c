"""How tests are divided among the workers of pytest-xdist (``-n``).

A file stays together, for the sake of its fixtures; files that have a server for themselves, or a
cluster that takes 10 s to start, go to one worker. These groups take minutes and come first, then
what is slow, so that the workers end together. A worker sends one report of a test, not three.
"""

from functools import cache
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# A fixture whose tests delete all there is on its server, and what each test of a cluster imports.
_TOGETHER = ("neo4j_url", "tests.knowledge_base.ray.workers")
# What ``--durations`` is to show of a set-up.
_LONG_S = 0.05


class Files(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives out files in the order of the collection: what is slow comes first there."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return _scope(self.config.rootpath / nodeid.partition("::")[0])


class BriefReports:
    """Leaves out what pytest-xdist shows of no test: to send it takes 1 ms of two processes."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test; report its set-up and its end only if they failed or took long."""
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.when == "call" or not report.passed or report.duration > _LONG_S:
                item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def sort_longest_first(items: list[pytest.Item]) -> None:
    """Put groups of files first, then slow tests; else the order stays."""
    items.sort(
        key=lambda item: (
            _scope(item.path) not in _TOGETHER,
            item.get_closest_marker("slow") is None,
        )
    )


@cache
def _scope(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    return next((each for each in _TOGETHER if each in text), str(file))
