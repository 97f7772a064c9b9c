"""One server for all of pytest's workers: their controller starts it when one first needs it.

The controller outlives each of them, so that none has to wait for another, and what it started
ends with it, also when it is killed. Without workers the process of the tests does the same.
"""

import atexit
import functools
import importlib
import os
from multiprocessing.connection import Client, Connection, Listener
from threading import Thread

import pytest

from tests.servers.process import Server

_VARIABLE = "LLAMA_RETRIEVAL_TESTS_CONTROLLER"


def url_of(module: str) -> str:
    """The URL of the server that ``start`` of a module starts, the same for the whole run.

    Raises:
        ConnectionError: If it could not be started, now or for another worker.
    """
    address = os.environ.get(_VARIABLE)
    return _of_the_controller(address, module) if address else _url(module)


@functools.cache
def _of_the_controller(address: str, module: str) -> str:
    with Client(address) as connection:
        connection.send(module)
        url, failure = connection.recv()
    if failure:
        raise ConnectionError(failure)
    return str(url)


@functools.cache  # also from wherever the fixtures are imported
def _url(module: str) -> str:
    server: Server = importlib.import_module(module).start()
    atexit.register(server.stop)
    return server.url


class Controller:
    """A pytest plugin of the process that starts the workers."""

    def __init__(self) -> None:
        self._listener = Listener(family="AF_UNIX")  # at an address that goes with the process
        os.environ[_VARIABLE] = str(self._listener.address)  # workers inherit it
        # What it starts ends with the thread that started it: one thread, as long as the process.
        Thread(target=self._answer_all, daemon=True).start()

    def _answer_all(self) -> None:
        while True:
            with self._listener.accept() as connection:
                self._answer(connection)

    def _answer(self, connection: "Connection") -> None:
        try:
            answer = (_url(connection.recv()), "")
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker says it
            answer = ("", f"{type(error).__name__}: {error}")
        connection.send(answer)


def share_servers(config: pytest.Config) -> None:
    """Let workers have one server of a kind, if the tests run in workers."""
    workers = getattr(config.option, "numprocesses", None)  # None without xdist, too
    if workers and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller())
