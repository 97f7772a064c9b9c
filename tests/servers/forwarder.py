"""Stands between a client and a server, and can go down, come back, fall silent or be slow."""

import contextlib
import socket
import threading
import time
from typing import Self


class Forwarder:
    """Forwards TCP connections from a port of its own.

    Args:
        port: Of the server, on this machine.

    Attributes:
        delay_s: How long a new connection waits before anything is forwarded.
        connections: How many were accepted.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener: socket.socket | None = None
        self._open: list[socket.socket] = []
        self.port = 0
        self.silent = threading.Event()
        self.delay_s = 0.0
        self.connections = 0
        self.up()

    def up(self) -> None:
        """Listen, on the same port as before."""
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._accepting = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        self._accepting.start()

    def down(self) -> None:
        """Refuse connections, and cut those there are."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            self._accepting.join(5)  # it may be about to open another
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with listener, contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                self._open.append(client)
                self.connections += 1
                time.sleep(self.delay_s)
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open.append(server)
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self.silent.is_set():
                    sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()
