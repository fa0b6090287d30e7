"""A web server for a store with runs in progress: pages are built when they are requested.

It listens on the loopback address only, and answers only requests that name the loopback as their host: a page from elsewhere
whose name resolves to this machine gets nothing. The index is built for each request, a run's page when it is missing or older
than the run's record. Everything else is a file of the store.
"""

from __future__ import annotations

import http.server
import io
import sys
import threading
import urllib.parse
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from ..store import RunDirectory, StoreError
from . import page
from .index import Index

HOST = "127.0.0.1"
TYPES = {
    **http.server.SimpleHTTPRequestHandler.extensions_map,
    ".log": "text/plain; charset=utf-8",
    ".jsonl": "text/plain; charset=utf-8",
    ".json": "application/json",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
}


class StoreServer(http.server.ThreadingHTTPServer):
    """Serves a store at `url` until `shutdown`. OSError if the port is taken; port 0 takes any free port."""

    daemon_threads = True

    def __init__(self, store: Path, port: int) -> None:
        self.store = store
        self.index = Index(store, builds_pages=True)
        self.building = threading.Lock()
        super().__init__((HOST, port), partial(_Handler, directory=str(store)))

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: object) -> None:
        """Ignore browsers that disconnect in the middle of an answer."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(http.server.SimpleHTTPRequestHandler):
    server: StoreServer
    extensions_map = TYPES

    def send_head(self) -> Any:
        host = self.headers.get("Host", "").partition(":")[0]
        if host not in (HOST, "localhost"):
            return self.send_error(HTTPStatus.FORBIDDEN, f"This server is for {HOST} only")
        try:
            path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        except ValueError:
            path = "\0"
        if "\0" in path:
            return self.send_error(HTTPStatus.BAD_REQUEST, "Invalid file name")
        try:
            if path in ("/", f"/{page.PAGE}"):
                with self.server.building:
                    self.server.index.write()
                self.path = f"/{page.PAGE}"
            elif path == "/version":
                return self._text(self.server.index.version())
            elif path.endswith(f"/report/{page.PAGE}"):
                self._build(path)
        except (StoreError, OSError) as error:
            return self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "The page cannot be built", str(error))
        return super().send_head()

    def _build(self, path: str) -> None:
        parts = path.strip("/").split("/")
        if len(parts) != 4 or ".." in parts:
            return
        directory = RunDirectory(self.server.store / parts[0] / parts[1])
        with self.server.building:
            if (directory.path / "run.json").is_file() and not page.is_current(directory):
                page.write_page(directory)

    def _text(self, text: str) -> Any:
        data = text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        return io.BytesIO(data)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def list_directory(self, path: Any) -> Any:
        return self.send_error(HTTPStatus.NOT_FOUND, "Directories are not listed")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: the terminal is for errors."""
