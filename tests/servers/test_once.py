"""Workers have one server of a kind between them."""

import sys
from types import SimpleNamespace

import pytest

from tests.servers import once


def test_a_server_is_started_once_for_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def start(password: str = "") -> SimpleNamespace:
        started.append(password)
        if password == "wrong":
            raise ValueError("no such user")
        return SimpleNamespace(url=f"http://host:{len(started)}", stop=started.clear)

    monkeypatch.setitem(sys.modules, "some_server", SimpleNamespace(start=start))
    monkeypatch.setenv(once._VARIABLE, "")
    once.Controller()
    for _ in range(2):  # a worker, and another, which remembers nothing
        once._of_the_controller.cache_clear()
        assert once.url_of("some_server") == "http://host:1"
        assert once.url_of("some_server", "secret") == "http://host:2"
        with pytest.raises(ConnectionError, match="ValueError: no such user"):
            once.url_of("some_server", "wrong")
    assert started[:2] == ["", "secret"]
    assert set(started[2:]) == {"wrong"}
