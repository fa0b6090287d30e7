"""The routes of a console, its assets, and the headers of every answer.

Every page is the same document. Its script draws the page that the URL names.
"""

import gzip
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import trio
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kraftlab.client import ClusterUnreachable
from kraftlab.common.errors import ApiError
from kraftlab.common.pages import assets_of, shared_assets
from kraftlab.lab.cluster_plan import ClusterError

from .changes import CHANGES
from .core import Console, Settings, answered, failure
from .plays import Plays
from .reads import READS
from .rows import BadQuery
from .visitors import HEADERS, Refusal, check_host

PAGES = ("quorum", "brokers", "topics", "moves", "time", "events", "groups", "faults", "sim", "login")
STYLES = ("page.css", "console.css")
TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}


class Assets:
    """The scripts and styles, compressed once. `hash` is that of all: a URL with it never changes its content."""

    def __init__(self) -> None:
        self.plain = {**shared_assets(), **assets_of("kraftlab.console")}
        self.hash = hashlib.sha256(b"".join(name.encode() + self.plain[name] for name in sorted(self.plain))).hexdigest()[:12]
        self.compressed = {name: gzip.compress(data, 9, mtime=0) for name, data in self.plain.items()}
        self._page = self._made()

    def answer(self, request: Request) -> Response:
        """Return a script or a style."""
        name = request.path_params["name"]
        if name not in self.plain or request.path_params["hash"] != self.hash:
            return Response("no such file; reload the page\n", 404, media_type="text/plain")
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self.plain[name], 200, headers, TYPES[name.rpartition(".")[2]])
        return Response(self.compressed[name], 200, headers | {"Content-Encoding": "gzip"}, TYPES[name.rpartition(".")[2]])

    def document(self, request: Request, status: int = 200) -> Response:
        """Return the document of every page."""
        return Response(self._page, status, {"Cache-Control": "no-store"}, "text/html; charset=utf-8")

    def _made(self) -> bytes:
        base = f"/assets/{self.hash}"
        styles = "".join(f'<link rel="stylesheet" href="{base}/{name}">' for name in STYLES)
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>kraftlab</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
            f'{styles}<script src="{base}/theme.js"></script><script type="module" src="{base}/main.js"></script></head>'
            '<body><a class="skip" href="#main">Skip to content</a><header class="top"></header>'
            '<main id="main" tabindex="-1"></main>'
            '<p id="said" role="status"></p><noscript>This page needs JavaScript.</noscript></body></html>'
        ).encode()


Page = Callable[[Request], Response]
"""A page of another room. It blocks, and sees no cluster."""
Endpoint = Callable[[Request], Awaitable[Response]]


def application(console: Console | None, others: Mapping[str, Page], settings: Settings) -> Starlette:
    """Return the application, with the pages of other rooms by path. Without a console there is no cluster, and others alone."""
    assets, plays = Assets(), Plays()

    def answering(answer: Endpoint, *, of_visitor: bool = True) -> Endpoint:
        """Return an endpoint with errors as answers; `of_visitor`: only for those who may see the cluster."""

        async def endpoint(request: Request) -> Response:
            try:
                if of_visitor and console is not None:
                    await console.visitor(request)
                return await answer(request)
            except (Refusal, ApiError, ClusterUnreachable, ClusterError, OSError, RuntimeError, ValueError, LookupError) as error:
                return failure(request, error)

        return endpoint

    async def seed(request: Request) -> Response:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_left, request, nursery.cancel_scope)
            try:
                return answered(request, await plays.document(request.query_params))
            except BadQuery as error:  # the nursery would make a group of it
                return failure(request, error)
            finally:
                nursery.cancel_scope.cancel()
        raise ClientDisconnect

    pages = {path: answering(partial(_in_thread, made)) for path, made in others.items()}
    asked = {"seed": answering(seed)}
    changed: dict[str, Endpoint] = {}
    if console is None:
        asked["about"] = answering(partial(_about_nothing, settings))
    else:
        asked |= {path: answering(partial(handler, console)) for path, handler in READS.items()}
        changed = {path: answering(partial(handler, console), of_visitor=False) for path, handler in CHANGES.items()}
    return Starlette(
        routes=[
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in pages.items()),
            *(Route(f"/api/v1/{path}", endpoint, methods=["GET"]) for path, endpoint in asked.items()),
            *(Route(f"/api/v1/{path}", endpoint, methods=["POST"]) for path, endpoint in changed.items()),
            Route("/assets/{hash}/{name}", assets.answer),
            Route("/", lambda request: RedirectResponse("/sim" if console is None else "/quorum")),
            *(Route(f"/{name}{rest}", assets.document) for name in PAGES for rest in ("", "/{rest:path}")),
        ],
        exception_handlers={HTTPException: partial(_nothing, assets)},
    )


def _nothing(assets: Assets, request: Request, error: Exception) -> Response:
    """Answer a request that has no route, or not with its method: people get a page."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    if status == 404 and not request.url.path.startswith(("/api/", "/assets/")):
        return assets.document(request, status)
    return failure(request, Refusal(status, f"there is no {request.method} {request.url.path}; see /quorum, or docs/console.md"))


async def _in_thread(page: Page, request: Request) -> Response:
    return await trio.to_thread.run_sync(page, request)


async def _about_nothing(settings: Settings, request: Request) -> Response:
    return answered(request, {"no_cluster": True, "runs": settings.runs})


async def _until_left(request: Request, work: trio.CancelScope) -> None:
    """Cancel work that nobody waits for."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    work.cancel()


class Guard:
    """Puts the headers on every answer, and refuses requests to other names before anything else."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._names = settings.names
        self._headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self._headers]}
            await send(message)

        headers = Headers(scope=scope)
        try:
            check_host(headers.get("host", headers.get(":authority", "")), self._names)
            if scope["path"].startswith("/api/") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
                raise Refusal(403, "a page of another site asks; only pages of this console may")
        except Refusal as refusal:
            await Response(f"{refusal}\n", refusal.status, media_type="text/plain")(scope, receive, send_with_headers)
            return
        try:
            await self._app(scope, receive, send_with_headers)
        except ClientDisconnect:
            return
