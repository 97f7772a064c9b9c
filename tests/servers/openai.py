"""An OpenAI-compatible chat server that gives scripted answers."""

import json
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, Self


@dataclass(frozen=True)
class Failure:
    """An answer that is an HTTP error."""

    status: int = 500


@dataclass(frozen=True)
class Never:
    """An answer that does not come while the server runs."""


Reply = str | Failure | Never


class FakeOpenAI:
    """Serves ``/v1/chat/completions`` on this machine, and remembers the requests.

    Args:
        replies: What it says, one a request; when they run out, an error.
    """

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.requests: list[dict[str, Any]] = []  # JSON as it came
        self._left = deque(replies)
        self._lock = Lock()
        self._closing = Event()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = fake.reply(self.path, json.loads(body))
                with suppress(ConnectionError):  # the client may have given up
                    self.send_response(status)
                    kind = "event-stream" if answer.startswith(b"data:") else "json"
                    self.send_header("Content-Type", f"{_TYPES[kind]}/{kind}")
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Nothing: pytest shows what a server prints."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        """What LlamaIndex calls the ``api_base``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def prompts(self) -> list[str]:
        """The prompts of the requests."""
        return [request["messages"][-1]["content"] for request in self.requests]

    def reply(self, path: str, request: dict[str, Any]) -> tuple[int, bytes]:
        """Status and body of the next answer."""
        if path != "/v1/chat/completions":
            return 404, b'{"error": {"message": "no such place"}}'
        with self._lock:
            self.requests.append(request)
            reply = self._left.popleft() if self._left else Failure(410)
        if isinstance(reply, Never):
            self._closing.wait()
            reply = Failure(503)
        if isinstance(reply, Failure):
            return reply.status, b'{"error": {"message": "scripted to fail"}}'
        if request.get("stream"):
            return 200, _events(request["model"], reply)
        return 200, json.dumps(_completion(request["model"], reply)).encode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()


_TYPES = {"event-stream": "text", "json": "application"}


def _events(model: str, text: str) -> bytes:
    """The same answer as server-sent events, a few characters each."""
    chunks = [
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": model,
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": text[n : n + 3]}}],
        }
        for n in range(0, len(text), 3)
    ]
    return "".join(f"data: {each}\n\n" for each in [*map(json.dumps, chunks), "[DONE]"]).encode()


def _completion(model: str, text: str) -> dict[str, object]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
