"""The routes of a console, its assets, and the headers of every answer.

Every page is the same document; its script draws the page that the URL names.
"""

import gzip
import hashlib
import importlib.resources
import logging
from collections.abc import Awaitable, Callable, Mapping

import trio
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kraftlab.client import ClusterUnreachable
from kraftlab.common.errors import ApiError
from kraftlab.lab.cluster_plan import ClusterError

from .changes import act, fault, log_in, log_out
from .core import Console, Handler, Settings, answered, failure
from .plays import Plays
from .reads import READS
from .rows import BadQuery
from .visitors import HEADERS, Refusal, check_host

logger = logging.getLogger("kraftlab.console")
audit = logging.getLogger("kraftlab.audit")

PAGES = ("quorum", "brokers", "topics", "moves", "time", "events", "groups", "faults", "sim", "login")
STYLES = ("page.css", "console.css", "sim.css")
TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}


class Assets:
    """The scripts and styles, compressed once. `hash` is that of all: a URL with it never changes its content."""

    def __init__(self) -> None:
        found: dict[str, bytes] = {}
        for package in ("kraftlab.common", "kraftlab.console"):
            for file in importlib.resources.files(package).joinpath("assets").iterdir():
                if file.name.rpartition(".")[2] in TYPES:
                    found[file.name] = file.read_bytes()
        self.hash = hashlib.sha256(b"".join(name.encode() + found[name] for name in sorted(found))).hexdigest()[:12]
        self.plain = found
        self.compressed = {name: gzip.compress(data, 9, mtime=0) for name, data in found.items()}

    def page(self) -> bytes:
        """Return the document of every page."""
        base = f"/assets/{self.hash}"
        styles = "".join(
            f'<link rel="stylesheet" href="{base}/{name}">' for name in (name for name in STYLES if name in self.plain)
        )
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
    assets = Assets()
    text = assets.page()

    def asset(request: Request) -> Response:
        name = request.path_params["name"]
        data = assets.compressed.get(name)
        if data is None or request.path_params["hash"] != assets.hash:
            return Response("no such file\n", 404, media_type="text/plain")
        headers = {"Cache-Control": "public, max-age=31536000, immutable", "Content-Encoding": "gzip"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            del headers["Content-Encoding"]
            data = assets.plain[name]
        return Response(data, 200, headers, TYPES[name.rpartition(".")[2]])

    def document(request: Request) -> Response:
        return Response(text, 200, {"Cache-Control": "no-store"}, "text/html; charset=utf-8")

    def answering(answer: Endpoint) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            try:
                return await answer(request)
            except (Refusal, ApiError, ClusterUnreachable, ClusterError, OSError, RuntimeError, ValueError, LookupError) as error:
                return failure(request, error)

        return endpoint

    def page(made: Page) -> Endpoint:
        async def answer(request: Request) -> Response:
            if console is not None:
                await console.visitor(request)
            return await trio.to_thread.run_sync(made, request)

        return answering(answer)

    async def seed(request: Request) -> Response:
        if console is not None:
            await console.visitor(request)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_left, request, nursery.cancel_scope)
            try:
                return answered(request, await plays.document(request.query_params))
            except BadQuery as error:  # the nursery would make a group of it
                return failure(request, error)
            finally:
                nursery.cancel_scope.cancel()
        raise ClientDisconnect

    plays = Plays()
    routes = [Route(path, page(made), methods=["GET"]) for path, made in others.items()]
    routes.append(Route("/api/v1/seed", answering(seed), methods=["GET"]))
    if console is None:
        routes.append(
            Route("/api/v1/about", page(lambda request: answered(request, {"no_cluster": True, "runs": settings.runs})))
        )
    else:
        routes += _routes(console, answering)
    return Starlette(
        routes=[
            *routes,
            Route("/assets/{hash}/{name}", asset),
            Route("/", lambda request: RedirectResponse("/sim" if console is None else "/quorum")),
            *(Route(f"/{name}{rest}", document) for name in PAGES for rest in ("", "/{rest:path}")),
        ]
    )


def _routes(console: Console, answering: Callable[[Endpoint], Endpoint]) -> list[Route]:
    """Return the routes that need a cluster."""

    def known(handler: Handler) -> Endpoint:
        async def answer(request: Request) -> Response:
            await console.visitor(request)
            return await handler(console, request)

        return answering(answer)

    return [
        *(Route(f"/api/v1/{path}", known(handler), methods=["GET"]) for path, handler in READS.items()),
        Route("/api/v1/login", answering(lambda request: log_in(console, request)), methods=["POST"]),
        Route("/api/v1/logout", answering(lambda request: log_out(console, request)), methods=["POST"]),
        Route("/api/v1/actions/{name}", known(act), methods=["POST"]),
        Route("/api/v1/faults", known(fault), methods=["POST"]),
    ]


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
