"""The runs of a store in the console: `kraftlab console --runs DIR` serves these pages.

A page is built when it is opened, and kept until its run changes. A store may come from somebody else, so nothing of it is served
as a page or a script: pages and scripts are made here, and the files of a run are text, JSON or downloads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response

from ..store import LEAST_RUN, SHRUNK, RunDirectory, StoreError
from . import content, page
from .index import Index

KEPT = 20
TEXT = "text/plain; charset=utf-8"
TYPES = {".log": TEXT, ".jsonl": TEXT, ".txt": TEXT, ".py": TEXT, ".json": "application/json"}
ASSET_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
Page = Callable[[Request], Response]


class Runs:
    """The pages of a store, by path. They block, and are thread-safe."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._index = Index(store, builds_pages=True)
        self._lock = threading.Lock()
        self._built: OrderedDict[Path, tuple[tuple[int, ...], str]] = OrderedDict()

    def pages(self) -> Mapping[str, Page]:
        return {
            "/runs": lambda request: RedirectResponse("/runs/"),
            "/runs/": self._all,
            "/runs/version": lambda request: Response(self._index.version(), media_type=TEXT),
            "/runs/.assets/{name}": _asset,
            "/runs/{workload}/{run}/report/{name}": self._report,
            "/runs/{path:path}": self._file,
        }

    def _all(self, request: Request) -> Response:
        with self._lock:
            return _html(self._index.render())

    def _report(self, request: Request) -> Response:
        names = request.path_params
        if names["name"] != page.PAGE:
            return _asset(request)
        directory = RunDirectory(self._place(f"{names['workload']}/{names['run']}"))
        sources = (directory.path / "run.json", directory.path / SHRUNK / LEAST_RUN)
        if not sources[0].is_file():
            return Response("there is no such run\n", 404, media_type=TEXT)
        written = tuple(source.stat().st_mtime_ns for source in sources if source.exists())
        try:
            with self._lock:
                known = self._built.pop(directory.path, None)
                if known is None or known[0] != written:
                    known = written, page.render(content.gather(directory), is_served=True)
                self._built[directory.path] = known
                while len(self._built) > KEPT:
                    self._built.popitem(last=False)
        except (StoreError, OSError) as error:
            return Response(f"the page cannot be built: {error}\n", 500, media_type=TEXT)
        return _html(known[1])

    def _file(self, request: Request) -> Response:
        path = self._place(request.path_params["path"])
        if not path.is_file():
            return Response("there is no such file\n", 404, media_type=TEXT)
        kind = TYPES.get(path.suffix)
        if kind is not None:
            return FileResponse(path, media_type=kind)
        return FileResponse(path, media_type="application/octet-stream", filename=path.name)

    def _place(self, name: str) -> Path:
        """Return a path inside the store. ValueError for other paths."""
        root = self._store.resolve()
        path = (root / name).resolve()
        if "\0" in name or not path.is_relative_to(root):
            raise ValueError(f"{name!r} is not in the store")
        return path


def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    data = page.assets().get(name)
    if data is None:
        return Response("there is no such file\n", 404, media_type=TEXT)
    return Response(data, media_type=ASSET_TYPES[name.rpartition(".")[2]])


def _html(text: str) -> Response:
    return Response(text, headers={"Cache-Control": "no-store"}, media_type="text/html; charset=utf-8")


def pages(store: Path) -> Mapping[str, Page]:
    """Return the pages of a store."""
    return Runs(store).pages()
