"""The console's routes: pages, assets, JSON, the stream of events, and changes.

Every page is the same document, whose script draws the page that the URL names. What blocks runs in a few threads; the event loop
only passes messages on.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.resources
import logging
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import trio
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.common.audit import shown
from kraftlab.common.errors import ApiError
from kraftlab.config.effective import Source
from kraftlab.lab.cluster_plan import ClusterError, load
from kraftlab.lab.faults.breaker import ORDERS, checked
from kraftlab.lab.faults.caller import OrderFailed, give
from kraftlab.lab.faults.names import names_of
from kraftlab.lab.faults.order_text import command_of
from kraftlab.lab.faults.orders import Order as FaultOrder
from kraftlab.lab.node_disks import has_own_disks
from kraftlab.metadata.acls import Operation
from kraftlab.metadata.image import MetadataImage

from . import actions
from .drain import drain
from .follower import Follower
from .groups import Groups
from .past import Past
from .plays import Plays
from .questions import Questions
from .rows import ROWS_MAX, BadQuery, ImageRows, Rows, Wanted
from .streams import Streams, encode
from .visitors import COOKIE, HEADERS, SESSION_S, Refused, Visitor, Visitors, check_host, check_write

logger = logging.getLogger("kraftlab.console")
audit = logging.getLogger("kraftlab.audit")

PAGES = ("quorum", "brokers", "topics", "moves", "time", "events", "groups", "faults", "sim", "login")
BODY_BYTES_MAX = 1 << 20
BODY_S = 10.0
COMPRESSED_FROM_BYTES = 1024
THREADS = 8
IMAGE_S = 3.0
POLLED_S = 2.0
"""Age at which the topics of Apache Kafka are asked for again."""
STREAMS_MAX = 200
STYLES = ("page.css", "uplot.css", "console.css", "sim.css")
TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
NOT_READ = "the metadata log has not been read yet; is the cluster up?"
T = TypeVar("T")


class Settings(NamedTuple):
    """Settings of one console. `data`: directory of the local cluster that it shows. `where`: options that name the cluster in a
    command. `names`: names of this host.
    """

    read_only: bool
    allow_chaos: bool
    data: Path | None
    where: tuple[str, ...]
    names: frozenset[str]
    secure: bool
    runs: bool


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


class Console:
    """Everything behind the routes. `client` asks as the console's own user."""

    def __init__(
        self, client: AdminClient, follower: Follower | None, visitors: Visitors, streams: Streams, settings: Settings
    ) -> None:
        self.client = client
        self.visitors = visitors
        self.streams = streams
        self.settings = settings
        self.groups = Groups(client)
        self.past = None if follower is None else Past(client, follower)
        self._follower = follower
        self._image_rows = ImageRows()
        self._polled: tuple[float, Rows] | None = None
        self._polling = threading.Lock()
        self.questions = Questions(client, streams, self.rows, settings.data, settings.allow_chaos)
        self.threads = trio.CapacityLimiter(THREADS)
        self.breaking = trio.CapacityLimiter(1)
        """A cluster carries out one order at a time; those that wait take no thread from the pages."""

    def rows(self) -> Rows | None:
        """Return the newest topics. Blocks for a cluster of Apache Kafka, which is asked."""
        if self._follower is None:
            with self._polling:
                if self._polled is None or time.monotonic() - self._polled[0] > POLLED_S:
                    self._polled = time.monotonic(), Rows(self.client.describe_topics(timeout_ms=5000), None, {})
                return self._polled[1]
        image = self._follower.image
        return None if image is None else self._image_rows.of(image)

    def wait(self) -> None:
        """Wait until the newest image is known, after a rest. Blocks."""
        if self._follower is not None:
            self._follower.has_image.wait(IMAGE_S)

    def start(self) -> None:
        for thread in self._all_threads():
            thread.start()

    def stop(self) -> None:
        for thread in self._all_threads():
            thread.stop()

    def _all_threads(self) -> list[Any]:
        return [*self.questions.threads, *([] if self._follower is None else [self._follower])]

    async def in_thread(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(function, limiter=self.threads, abandon_on_cancel=True)

    def about(self, visitor: Visitor) -> dict[str, object]:
        """Return what a page needs to know once: the user, the rights, and what this cluster cannot tell."""
        kafka = self.client.speaks_kafka
        missing = (
            ["the metadata log (time, events, history)", "who each controller follows", "progress of moves"] if kafka else []
        )
        alter = not self.settings.read_only and (kafka or visitor.may(Operation.ALTER))
        return {
            "user": visitor.user,
            "must_log_in": self.visitors.must_log_in,
            "read_only": self.settings.read_only,
            "may_alter": alter,
            "allow_chaos": not self.why_no_faults(visitor),
            "why_no_faults": self.why_no_faults(visitor),
            "speaks_kafka": kafka,
            "missing": missing,
            "where": " ".join(self.settings.where),
            "runs": self.settings.runs,
        }

    def why_no_faults(self, visitor: Visitor) -> str:
        """Return why the visitor may not break the cluster, with the next step; "" if faults are allowed."""
        if self.settings.data is None or not self.settings.allow_chaos:
            return "this console offers no faults; start it with kraftlab up --allow-chaos --console"
        if self.settings.read_only:
            return "this console was started with --read-only; use kraftlab cluster"
        if not visitor.may(Operation.ALTER):
            return (
                f"user {visitor.user} has no right to ALTER the cluster, which faults need; "
                f"kraftlab acls --add --allow-principal User:{visitor.user} --operation alter --cluster gives it"
            )
        return ""

    # -- requests ----------------------------------------------------------------------------------------------------------

    async def visitor(self, request: Request) -> Visitor:
        key = request.cookies.get(COOKIE, "")
        return await self.in_thread(lambda: self.visitors.of(key))

    async def body(self, request: Request, kind: type[T]) -> T:
        """Return the JSON of a request. BadQuery, Refused."""
        check_write(request.headers)
        data = bytearray()
        with trio.move_on_after(BODY_S) as reading:
            async for part in request.stream():
                data += part
                if len(data) > BODY_BYTES_MAX:
                    raise Refused(413, f"a request has at most {BODY_BYTES_MAX} bytes")
        if reading.cancelled_caught:
            raise Refused(408, f"the request has not ended within {BODY_S:g} s")
        try:
            return msgspec.json.decode(bytes(data), type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadQuery(f"the body is not what was expected: {error}") from None

    def known_past(self) -> Past:
        if self.past is None:
            raise BadQuery("this cluster does not show its metadata log; ask a kraftlab cluster")
        return self.past

    def known_image(self) -> MetadataImage:
        self.known_past()
        image = None if self._follower is None else self._follower.image
        if image is None:
            raise BadQuery(NOT_READ)
        return image

    def known_rows(self) -> Rows:
        rows = self.rows()
        if rows is None:
            raise BadQuery(NOT_READ)
        return rows


Handler = Callable[[Console, Request], Awaitable[Response]]


def answered(request: Request, document: object, status: int = 200) -> Response:
    """Return a JSON answer, compressed if it is large."""
    body = document if isinstance(document, bytes) else encode(document)
    headers = {"Cache-Control": "no-store"}
    if len(body) > COMPRESSED_FROM_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, 1, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(body, status, headers, "application/json")


def failure(request: Request, error: Exception) -> Response:
    """Return the answer for an error that a visitor can act on."""
    match error:
        case Refused():
            return answered(request, {"error": {"name": "REFUSED", "message": str(error)}}, error.status)
        case ApiError():
            document = {"name": error.code.name, "code": error.code.value, "message": error.message or error.code.message}
            return answered(request, {"error": document}, 409)
        case OrderFailed():
            return answered(request, {"error": {"name": "REFUSED", "message": str(error)}}, 409)
        case ClusterUnreachable() | ClusterError():
            return answered(request, {"error": {"name": "UNREACHABLE", "message": str(error)}}, 503)
        case _:
            text = str(error.args[0]) if isinstance(error, KeyError | LookupError) and error.args else str(error)
            return answered(request, {"error": {"name": "BAD_REQUEST", "message": text}}, 400)


# -- reading -------------------------------------------------------------------------------------------------------------------


async def state(console: Console, request: Request) -> Response:
    return answered(request, console.streams.state())


async def samples(console: Console, request: Request) -> Response:
    return answered(request, [*console.questions.samples])


async def about(console: Console, request: Request) -> Response:
    return answered(request, console.about(await console.visitor(request)))


def number(query: Mapping[str, str], name: str, default: int | None, most: int = 2**53) -> int | None:
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise BadQuery(f"{name} is {text[:40]!r}; expected a number from 0 to {most}")
    return min(int(text), most)


def reading(read: Callable[[Console, Request], object]) -> Handler:
    """Return the handler of a question that blocks."""

    async def handler(console: Console, request: Request) -> Response:
        console.streams.touch()
        await console.in_thread(console.wait)
        return answered(request, await console.in_thread(lambda: read(console, request)))

    return handler


def _page(query: Mapping[str, str]) -> tuple[Wanted, str, int, int]:
    """Return filters, order, start and length of the rows that a query wants; `internal=0` leaves internal topics out."""
    name, text, state = (query.get(name, "") for name in ("topic", "q", "state"))
    wanted = Wanted(name, text, query.get("internal") != "0", number(query, "broker", None), state)
    return wanted, query.get("sort", ""), number(query, "from", 0) or 0, number(query, "limit", 50, ROWS_MAX) or 0


def _topics(console: Console, request: Request) -> object:
    return console.known_rows().topic_page(*_page(request.query_params))


def _partitions(console: Console, request: Request) -> object:
    return console.known_rows().partition_page(*_page(request.query_params))


def _topic(console: Console, request: Request) -> object:
    """Return the row of a topic and its effective configs."""
    name = request.path_params["topic"]
    topic = console.known_rows().topic(name)
    if topic is None:
        raise BadQuery(f"there is no topic {name!r}")
    described = console.client.describe_configs([(2, name)], timeout_ms=5000)
    return {"topic": topic, "configs": next(iter(described.values()), ())}


def _disks(console: Console, request: Request) -> object:
    """Return the replicas in the log directories of one broker or of all, of one topic or partition or of all."""
    from kraftlab.client.log_dirs import LogDirFilter

    query = request.query_params
    broker, topic, partition = number(query, "broker", None), query.get("topic"), number(query, "partition", None)
    if topic is None:
        wanted = LogDirFilter()
    else:
        wanted = LogDirFilter(topics=[topic]) if partition is None else LogDirFilter(partitions=[(topic, partition)])
    return console.client.all_log_dirs(wanted, brokers=None if broker is None else [broker])


def _broker_configs(console: Console, request: Request) -> object:
    """Return the configs of a broker that are not defaults. The broker itself is asked."""
    resource = (4, str(request.path_params["broker"]))
    described = console.client.describe_configs([resource], timeout_ms=5000)
    return [each for each in described.get(resource, ()) if each.config_source != Source.DEFAULT]


def _groups(console: Console, request: Request) -> object:
    query = request.query_params
    start, limit = number(query, "from", 0) or 0, number(query, "limit", 50, ROWS_MAX) or 0
    texts = query.get("q", ""), query.get("topic", ""), query.get("sort", "")
    return console.groups.some(*texts, "internal" in query, start, limit)


def _events(console: Console, request: Request) -> object:
    query = request.query_params
    before, after = number(query, "before", None), number(query, "after", 0) or 0
    limit = number(query, "limit", 100) or 1
    return console.known_past().events(before, after, query.get("kind", ""), query.get("about", ""), limit)


def _history(console: Console, request: Request) -> object:
    partition = number(request.path_params, "partition", None) or 0
    return console.known_past().history(request.path_params["topic"], partition)


def _image(console: Console, request: Request) -> object:
    at, path, text = (request.query_params.get(name, "") for name in ("at", "path", "q"))
    return console.known_past().tree(at, path, text)


def _diff(console: Console, request: Request) -> object:
    start, end, text = (request.query_params.get(name, "") for name in ("from", "to", "q"))
    return console.known_past().difference(start, end, text)


async def stream(console: Console, request: Request) -> Response:
    """Stream what happens; the rights of the visitor are asked for again now and then."""
    if console.streams.count >= STREAMS_MAX:
        raise Refused(503, f"{STREAMS_MAX} pages are open already; close some")
    key, last = request.cookies.get(COOKIE, ""), request.headers.get("last-event-id", "")
    follower = console._follower
    last_id = int(last) if last.isascii() and last.isdigit() and len(last) <= 100 else None

    async def messages() -> AsyncGenerator[bytes]:
        checked_at = trio.current_time()
        async with aclosing(console.streams.open(lambda: [] if follower is None else follower.known.missed(last_id))) as found:
            async for message in found:
                yield message
                if trio.current_time() - checked_at > 60:
                    checked_at = trio.current_time()
                    try:
                        await console.in_thread(lambda: console.visitors.of(key))
                    except Refused:
                        return
                    except (ApiError, ClusterUnreachable):
                        continue

    return StreamingResponse(messages(), headers={"Cache-Control": "no-store"}, media_type="text/event-stream")


# -- changing ------------------------------------------------------------------------------------------------------------------


class Login(msgspec.Struct, forbid_unknown_fields=True):
    user: str
    password: str


async def log_in(console: Console, request: Request) -> Response:
    given = await console.body(request, Login)
    host = request.client.host if request.client else ""
    try:
        key = await console.in_thread(lambda: console.visitors.log_in(given.user, given.password, host))
    except Refused:
        await trio.sleep(1)
        raise
    answer = answered(request, {"user": given.user})
    answer.set_cookie(COOKIE, key, max_age=SESSION_S, httponly=True, samesite="strict", secure=console.settings.secure)
    return answer


async def log_out(console: Console, request: Request) -> Response:
    check_write(request.headers)
    console.visitors.log_out(request.cookies.get(COOKIE, ""))
    answer = answered(request, {})
    answer.delete_cookie(COOKIE)
    return answer


async def act(console: Console, request: Request) -> Response:
    visitor = await console.visitor(request)
    order = await console.body(request, actions.Order)
    name = request.path_params["name"]
    if console.settings.read_only and not order.preview:
        raise Refused(403, "this console was started with --read-only")
    outcome = "failed"
    try:
        found, typed = await console.in_thread(lambda: actions.carry_out(name, order, visitor.client, console.settings.where))
        outcome = "done"
    finally:
        if not order.preview:
            _audit(request, visitor, name, msgspec.json.encode(order.request).decode(), outcome)
    return answered(request, {**msgspec.to_builtins(found), "typed": typed})


async def fault(console: Console, request: Request) -> Response:
    """Give the cluster an order of `kraftlab cluster`."""
    visitor = await console.visitor(request)
    order = await console.body(request, FaultOrder)
    data, why, outcome = console.settings.data, console.why_no_faults(visitor), "refused"
    try:
        if why or data is None:
            raise Refused(403, why)
        outcome = "unknown"  # the order may be carried out although nobody waits any more
        done = await trio.to_thread.run_sync(give, data, order, limiter=console.breaking, abandon_on_cancel=True)
        outcome = "done"
    except (ClusterError, OSError):
        outcome = "failed"
        raise
    finally:
        _audit(request, visitor, "fault", command_of(order).removeprefix("kraftlab cluster "), outcome)
    return answered(request, done)


def _orders(console: Console, request: Request) -> object:
    """Return what can be ordered: every order with its fields, and the nodes with their log directories."""
    data = console.settings.data
    plan = None if data is None else load(data)
    if data is None or plan is None:
        raise BadQuery("faults need the directory of a local cluster; start the console with --data DIR")
    kinds = {
        name: {"takes": kind.takes, "fields": kind.fields, "stays": kind.stays}
        for name, kind in ORDERS.items()
        if name not in ("status", "faults")
    }
    nodes = [{"name": node.name, "role": node.role, "log_dirs": node.log_dirs} for node in plan.nodes]
    return {"orders": kinds, "nodes": nodes, "names": names_of(plan), "own_disks": has_own_disks(data)}


def _fault_command(console: Console, request: Request) -> object:
    """Return an order as a command."""
    try:
        order = msgspec.json.decode(request.query_params.get("order", ""), type=FaultOrder)
    except msgspec.MsgspecError as error:
        raise BadQuery(f"the order is not what was expected: {error}") from None
    try:
        checked(order)
    except ClusterError as error:
        return {"command": "", "missing": str(error)}
    return {"command": command_of(order, console.settings.where), "missing": ""}


def _audit(request: Request, visitor: Visitor, call: str, names: str, outcome: str) -> None:
    host = request.client.host if request.client else ""
    user, names = shown(visitor.user or "anybody"), shown(names)
    fields = {"event": "console", "principal": user, "host": host, "call": call, "names": names, "outcome": outcome}
    audit.info("console: %s from %s, %s %s: %s", user, host, call, names, outcome, extra={"fields": fields})


READS: dict[str, Handler] = {
    "state": state,
    "about": about,
    "samples": samples,
    "events": stream,
    "topics": reading(_topics),
    "topics/{topic}": reading(_topic),
    "partitions": reading(_partitions),
    "partitions/{topic}/{partition}/history": reading(_history),
    "disks": reading(_disks),
    "records": reading(_events),
    "image": reading(_image),
    "diff": reading(_diff),
    "faults": reading(_orders),
    "faults/command": reading(_fault_command),
    "brokers/{broker:int}/configs": reading(_broker_configs),
    "brokers/{broker:int}/drain": reading(lambda console, request: drain(console.known_image(), request.path_params["broker"])),
    "groups": reading(_groups),
    "groups/{group:path}": reading(lambda console, request: console.groups.one(request.path_params["group"])),
    "marks": reading(lambda console, request: console.known_past().marks()),
}


# -- the application -----------------------------------------------------------------------------------------------------------

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
            except (Refused, ApiError, ClusterUnreachable, ClusterError, ValueError, LookupError) as error:
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
        return answered(request, await plays.document(request.query_params))

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

        host = next((value.decode("latin-1") for name, value in scope["headers"] if name in (b"host", b":authority")), "")
        try:
            check_host(host, self._names)
        except Refused as refusal:
            await Response(f"{refusal}\n", refusal.status, media_type="text/plain")(scope, receive, send_with_headers)
            return
        try:
            await self._app(scope, receive, send_with_headers)
        except ClientDisconnect:
            return
