"""``python -m tests.servers.with_elasticsearch COMMAND...`` runs it beside a real Elasticsearch.

The command finds `KB_URL_VARIABLE`, the URL of a knowledge base that is not there yet, which the
second notebook reads. The server is the one that `URL_VARIABLE` names, where the knowledge base is
removed again, or one that is started for the command, and stopped when it ends or is ended.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from uuid import uuid4

from llama_retrieval_ext import open_store
from tests.servers.elasticsearch import URL_VARIABLE, start
from tests.servers.given import collection_url, given_server

KB_URL_VARIABLE = "KB_ELASTICSEARCH_URL"


def main(command: Sequence[str]) -> int:
    """Run a command, and return what it returned."""
    if not command:
        sys.exit("usage: python -m tests.servers.with_elasticsearch COMMAND...")
    signal.signal(signal.SIGTERM, _end)
    with _server() as base:
        url = collection_url(base, f"switching-{uuid4().hex}")
        with subprocess.Popen(command, env={**os.environ, KB_URL_VARIABLE: url}) as process:
            try:
                return process.wait()
            except BaseException:
                process.terminate()
                raise
            finally:
                process.wait()
                _remove(url)


@contextmanager
def _server() -> Iterator[str]:
    """The URL of a server, as our URLs begin."""
    given = given_server(URL_VARIABLE, "elasticsearch")
    if given:
        yield given
        return
    server = start()
    try:
        yield server.url.replace("http", "elasticsearch", 1)
    finally:
        server.stop()


def _remove(url: str) -> None:
    with open_store(url) as store:
        store.beside("__ledger").clear()  # type: ignore[attr-defined]  # on a server it has
        store.clear()


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
