"""The controller's address: a small HTTP server in front of the desk, for members, for people and for Prometheus."""

import json
import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from headgate.errors import SetupError
from headgate.groups.desk import Desk
from headgate.groups.wire import MOST_BYTES, AssignmentRequest, Beat, decoded, encoded

log = logging.getLogger(__name__)

_PATIENCE_S = 5.0
"""A connection that says nothing for this long is closed."""


class DeskServer:
    """Listens from construction on, so that the port is known; answers between start and stop."""

    def __init__(self, desk: Desk, host: str, port: int, status: Callable[[], dict[str, Any]] = dict) -> None:
        class Handler(_Handler):
            pass

        Handler.desk, Handler.status = desk, staticmethod(status)
        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise SetupError(
                f"cannot listen on {host}:{port}: {error}; choose another address with --listen, port 0 for any"
            ) from error
        self._server.daemon_threads = True
        self.address = f"http://{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="desk", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    desk: Desk
    status: Callable[[], dict[str, Any]]
    timeout = _PATIENCE_S

    def do_POST(self) -> None:
        asked = {"/v1/assignment": self._assignment, "/v1/beat": self._beat}.get(self.path)
        length = self.headers.get("Content-Length", "")
        if asked is None:
            self._answer(404, b"post to /v1/assignment or /v1/beat", "text/plain")
        elif not length.isdigit() or int(length) > MOST_BYTES:
            self._answer(413, b"a Content-Length that we would read is needed", "text/plain")
        else:
            try:
                answer = asked(self.rfile.read(int(length)))
            except ValueError as error:
                log.warning("refused a request to %s from %s: %s", self.path, self.client_address[0], error)
                self._answer(400, str(error).encode(), "text/plain")
            else:
                self._answer(200, answer, "application/json")

    def _assignment(self, body: bytes) -> bytes:
        return encoded(self.desk.assignment(decoded(AssignmentRequest, body)))

    def _beat(self, body: bytes) -> bytes:
        return encoded(self.desk.beat(decoded(Beat, body)))

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._answer(200, generate_latest(), CONTENT_TYPE_LATEST)
        elif self.path == "/":
            self._answer(200, json.dumps(type(self).status(), indent=2).encode(), "application/json")
        else:
            self._answer(404, b"there are / and /metrics", "text/plain")

    def _answer(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)
