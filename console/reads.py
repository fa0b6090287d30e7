"""Questions of pages about the cluster: handlers of GET requests, and the stream of events.

A question that blocks runs in a thread. READS has them all, by path below /api/v1.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from kraftlab.client import ClusterUnreachable
from kraftlab.common.errors import ApiError
from kraftlab.config.effective import Source
from kraftlab.lab.cluster_plan import ClusterError, load
from kraftlab.lab.faults.breaker import ORDERS, checked
from kraftlab.lab.faults.names import names_of
from kraftlab.lab.faults.order_text import command_of
from kraftlab.lab.faults.orders import Order as FaultOrder
from kraftlab.lab.node_disks import has_own_disks

from .core import Console, Handler, answered
from .drain import drain
from .elections import picture
from .rows import ROWS_MAX, BadQuery, RowFilter
from .visitors import COOKIE, Refusal

logger = logging.getLogger("kraftlab.console")
audit = logging.getLogger("kraftlab.audit")

STREAMS_MAX = 200


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


def _page(query: Mapping[str, str]) -> tuple[RowFilter, str, int, int]:
    """Return filters, order, start and length of the rows that a query wants; `internal=0` leaves internal topics out."""
    name, text, state = (query.get(name, "") for name in ("topic", "q", "state"))
    wanted = RowFilter(name, text, query.get("internal") != "0", number(query, "broker", None), state)
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
    resource = (4, str(number(request.path_params, "broker", None)))
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
    kind, about, internal = query.get("kind", ""), query.get("about", ""), query.get("internal") != "0"
    return console.known_past().events(before, after, kind, about, limit, internal=internal)


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
        raise Refusal(503, f"{STREAMS_MAX} pages are open already; close some")
    key, last = request.cookies.get(COOKIE, ""), request.headers.get("last-event-id", "")
    follower = console._follower
    last_id = int(last) if last.isascii() and last.isdigit() and len(last) <= 100 else None

    async def messages() -> AsyncGenerator[bytes]:
        checked_at = trio.current_time()
        async with aclosing(console.streams.open(lambda: [] if follower is None else follower.known.missed(last_id))) as found:
            async for message in found:
                if not console.visitors.knows(key):
                    return
                yield message
                if trio.current_time() - checked_at > 60:
                    checked_at = trio.current_time()
                    try:
                        await console.in_thread(lambda: console.visitors.of(key))
                    except Refusal:
                        return
                    except (ApiError, ClusterUnreachable):
                        continue

    return StreamingResponse(messages(), headers={"Cache-Control": "no-store"}, media_type="text/event-stream")


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
    "brokers/{broker}/configs": reading(_broker_configs),
    "brokers/{broker}/drain": reading(
        lambda console, request: drain(console.known_image(), number(request.path_params, "broker", None) or 0)
    ),
    "groups": reading(_groups),
    "groups/{group:path}": reading(lambda console, request: console.groups.one(request.path_params["group"])),
    "election": reading(
        lambda console, request: picture(console.settings.data, number(request.query_params, "epoch", None) or 0)
    ),
    "marks": reading(lambda console, request: console.known_past().marks()),
}
