"""A user's own server, named by an environment variable, in place of one that is started here."""

import functools
import os
import re
import socket
from urllib.parse import urlsplit

import pytest

_CONNECT_S = 5
_VARIABLE = re.compile("LLAMA_RETRIEVAL_[A-Z0-9]+_URL")


def given_hosts() -> list[str]:
    """The hosts of all servers that are named, which tests may talk to."""
    named = [value for name, value in os.environ.items() if _VARIABLE.fullmatch(name)]
    return sorted({host for url in named if (host := urlsplit(url).hostname)})


def given_server(variable: str, scheme: str) -> str:
    """The server's base URL as our URLs begin; empty where the variable is not set.

    Args:
        variable: Holds ``http://host:port``, or the same with our scheme; ``https`` for TLS.
        scheme: That of our URLs.
    """
    url = os.environ.get(variable, "")
    named, _, place = url.partition("://")
    if not url:
        return ""
    ours = {"http": scheme, "https": f"{scheme}s"}.get(named, named)
    if ours not in (scheme, f"{scheme}s") or not urlsplit(f"//{place}").port:
        pytest.fail(f"{variable} is {url!r}; expected http://host:port", pytrace=False)
    return f"{ours}://{place}"


def reachable(variable: str, url: str) -> str:
    """The same URL; the test fails where nobody listens there."""
    reason = _refusal(url)
    if reason:
        problem = f"{variable} names a server at {url}, which cannot be reached ({reason})"
        pytest.fail(f"{problem}: start it, or unset the variable", pytrace=False)
    return url


def collection_url(base: str, name: str) -> str:
    """The URL of a collection on a server; what stands after ``?`` in the base stays there."""
    place, mark, options = base.partition("?")
    return f"{place.rstrip('/')}/{name}{mark}{options}"


def local_port(url: str) -> int | None:
    """The port of a server on this machine that speaks without TLS; None of any other."""
    parts = urlsplit(url)
    plain = parts.scheme in ("http", "milvus")
    if parts.hostname not in ("127.0.0.1", "localhost") or not plain:
        return None
    return parts.port


@functools.cache  # once a session: a server that is away may take its time each time
def _refusal(url: str) -> str:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), _CONNECT_S).close()
    except OSError as error:
        return str(error)
    return ""
