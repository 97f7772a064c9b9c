"""Workers have one server of a kind between them."""

import sys
from types import SimpleNamespace

import pytest

from tests.servers import once


def test_a_server_is_started_once_for_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def start() -> SimpleNamespace:
        started.append("")
        return SimpleNamespace(url=f"http://host:{len(started)}", stop=started.clear)

    def fail() -> SimpleNamespace:
        raise ValueError("no such user")

    monkeypatch.setitem(sys.modules, "some_server", SimpleNamespace(start=start))
    monkeypatch.setitem(sys.modules, "broken_server", SimpleNamespace(start=fail))
    monkeypatch.setenv(once._VARIABLE, "")
    once.Controller()
    for _ in range(2):  # a worker, and another, which remembers nothing
        once._of_the_controller.cache_clear()
        assert once.url_of("some_server") == "http://host:1"
        with pytest.raises(ConnectionError, match="ValueError: no such user"):
            once.url_of("broken_server")
    assert len(started) == 1
