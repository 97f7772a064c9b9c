"""A server in a process of its own, as the command line starts it."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding, Scope


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Attributes:
        url: Where it listens.
        process: Ends with it.
        log: The file that has its standard error.
    """

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> int:
        """Tell it to stop, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "llama_retrieval_ext", *args]


@contextmanager
def serving(
    kb_url: str,
    folder: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    tree: Path | None = None,
) -> Iterator[Server]:
    """Start a server, perhaps of another working tree, and wait until it is ready."""
    port = free_port()
    log = folder / "server.log"
    args = command("serve", "--kb", kb_url, "--port", str(port), *options)
    with log.open("wb") as stderr:
        full = {**os.environ, **({} if tree is None else {"PYTHONPATH": str(tree)}), **(env or {})}
        process = subprocess.Popen(args, stderr=stderr, env=full, cwd=tree)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, process, log)
        yield Server(url, process, log)
    finally:
        process.kill()
        process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        try:
            if httpx.get(f"{url}/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"the server does not start: {log.read_text()}")


def secret_of(tenant: str) -> str:
    return f"secret-key-of-{tenant}"


def keys_of(tenants: list[str]) -> str:
    listed = (f"{{name: {t}, key: {secret_of(t)}, tenant_id: {t}, write: true}}" for t in tenants)
    return f"keys: [{', '.join(listed)}]"


_WORDS = (
    "annual leave travel safety rules budget project delivery crane invoice customer contract "
    "meeting office laptop password supplier quality audit tax salary training holiday visa "
    "hotel flight warehouse machine repair insurance claim policy risk plan schedule design"
)


def fill(kb_url: str, tenants: list[str], *, per_tenant: int) -> None:
    """Documents for each tenant; each has its tenant's name in it, and a word of its own."""
    chance = random.Random(0)
    from llama_index.core import Document  # noqa: PLC0415 - two seconds

    with KnowledgeBase.open(kb_url, embed_model=LocalEmbedding(), require_scope=True) as kb:
        for tenant in tenants:
            documents = [
                Document(
                    id_=f"{tenant}-{n}",
                    text=f"Report {word(n)} of {tenant}: "
                    + " ".join(chance.choices(_WORDS.split(), k=chance.randint(10, 60))),
                )
                for n in range(per_tenant)
            ]
            kb.add(documents, scope=Scope(tenant), show_progress=False).raise_for_failures()


def word(number: int) -> str:
    """A word for a number, which no other number has."""
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:05d}") + "x"


def tenants_in(text: str) -> set[str]:
    return set(re.findall(r"tenant\d+", text))
