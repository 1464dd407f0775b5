"""A receiver of webhooks on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


class Receiver:
    """A server on loopback that gives the answers it is told to, then 204."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.headers: dict[str, str] = {}
        self.requests: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(body)

            def do_GET(self) -> None:
                self.answer(b"")

            def answer(self, body: bytes) -> None:
                receiver.requests.append((dict(self.headers), body))
                self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook/secret"

    def types(self) -> list[str]:
        return [json.loads(body)["type"] for _, body in self.requests]


@contextmanager
def listening() -> Iterator[Receiver]:
    """Yield a receiver that takes requests until the end of the block."""
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.server.shutdown()
        thread.join()
        receiver.server.server_close()
