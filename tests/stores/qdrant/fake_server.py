"""A Qdrant server by HTTP, as far as the client goes: behind it is the client's local mode."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import TypeAdapter
from qdrant_client import QdrantClient, models
from qdrant_client.http.models import (
    CountRequest,
    CreateCollection,
    FilterSelector,
    PointsList,
    QueryRequestBatch,
    ScrollRequest,
)

KEY = "s3cret-key"


class FakeServer:
    """What the tests set and read."""

    def __init__(self) -> None:
        self.client = QdrantClient(":memory:")
        self.lock = threading.Lock()
        self.requests: list[tuple[str, str, str]] = []  # method, path, body
        self.status: int | None = None  # answer this instead
        self.delay_s = 0.0
        self.ended = threading.Event()
        self.key: str | None = None
        self.version = "1.20.0"
        self.connections = 0
        self.url = ""

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def answer(self, method: str, path: str, body: str) -> object:
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        if parts == [""]:
            return None
        name, rest = parts[1], "/".join(parts[2:])
        data = json.loads(body) if body else {}
        with self.lock:
            return getattr(self, f"_{method.lower()}_{rest.replace('/', '_')}")(name, data)

    def _get_(self, name: str, _: object) -> object:
        return self.client.get_collection(name)

    def _get_exists(self, name: str, _: object) -> object:
        return {"exists": self.client.collection_exists(name)}

    def _put_(self, name: str, data: dict[str, Any]) -> object:
        made = CreateCollection(**data)
        return self.client.create_collection(
            name,
            vectors_config=made.vectors,
            sparse_vectors_config=made.sparse_vectors,
            metadata=made.metadata,
        )

    def _delete_(self, name: str, _: object) -> object:
        return self.client.delete_collection(name)

    def _put_index(self, name: str, data: dict[str, Any]) -> object:
        return {"operation_id": 0, "status": "completed"}

    def _put_points(self, name: str, data: dict[str, Any]) -> object:
        return self.client.upsert(name, PointsList(**data).points)

    def _post_points_delete(self, name: str, data: dict[str, Any]) -> object:
        return self.client.delete(name, FilterSelector(**data))

    def _post_points_count(self, name: str, data: dict[str, Any]) -> object:
        request = CountRequest(**data)
        return self.client.count(name, request.filter, exact=True)

    def _post_points_scroll(self, name: str, data: dict[str, Any]) -> object:
        request = ScrollRequest(**data)
        points, offset = self.client.scroll(
            name,
            scroll_filter=request.filter,
            limit=request.limit or 10,
            offset=request.offset,
            with_payload=request.with_payload or False,
            with_vectors=request.with_vector or False,
        )
        return {"points": points, "next_page_offset": offset}

    def _post_points_query_batch(
        self, name: str, data: dict[str, Any]
    ) -> list[models.QueryResponse]:
        searches = QueryRequestBatch(**data).searches
        for search in searches:  # of which local mode knows one
            search.params = search.params and models.SearchParams(idf=search.params.idf)
        pages = self.client.query_batch_points(name, searches)
        for search, page in zip(searches, pages, strict=True):
            for point in page.points if search.prefetch is None else ():
                point.score = round(point.score, 7)  # a server's scores have no noise
        return pages


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeServer

    def setup(self) -> None:
        self.fake.connections += 1
        super().setup()

    def do_GET(self) -> None:
        self._do("GET")

    def do_PUT(self) -> None:
        self._do("PUT")

    def do_POST(self) -> None:
        self._do("POST")

    def do_DELETE(self) -> None:
        self._do("DELETE")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass

    def _do(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        fake = self.fake
        fake.requests.append((method, self.path, body))
        fake.ended.wait(fake.delay_s)
        if fake.status is not None:
            self._send(fake.status, {"status": {"error": "as in a test"}})
        elif fake.key is not None and self.headers.get("api-key") != fake.key:
            self._send(401, {"status": {"error": "Must provide an API key"}})
        elif urlsplit(self.path).path == "/":
            self._send(200, {"title": "qdrant", "version": fake.version})
        else:
            self._answer(method, body)

    def _answer(self, method: str, body: str) -> None:
        try:
            result = self.fake.answer(method, self.path, body)
        except ValueError as error:
            missing = "not found" in str(error)
            self._send(404 if missing else 400, {"status": {"error": str(error)}})
        else:
            self._send(200, {"result": result, "status": "ok", "time": 0.0})

    def _send(self, status: int, data: object) -> None:
        content = TypeAdapter(object).dump_json(data)
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that hangs up


@contextmanager
def serving(fake: FakeServer, *, port: int = 0) -> Iterator[FakeServer]:
    handler = type("Handler", (_Handler,), {"fake": fake})
    with _Server(("127.0.0.1", port), handler) as server:
        fake.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        fake.ended.clear()
        try:
            yield fake
        finally:
            fake.ended.set()
            server.shutdown()
            thread.join()
