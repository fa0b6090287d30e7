"""Questions of pages about the cluster: handlers of GET requests, and the stream of events.

A question that blocks runs in a thread. READS has them all, by path below /api/v1.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import TypeVar

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from kraftlab.client import ClusterUnreachable
from kraftlab.client.log_dirs import LogDirFilter
from kraftlab.common.errors import ApiError, ErrorCode
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
from .rows import BadQuery, RowFilter
from .visitors import COOKIE, Refusal

STREAMS_MAX = 200
NUMBER_MAX = 2**53
CALL_MS = 5000
Query = Mapping[str, str]
Default = TypeVar("Default", int, None)


async def state(console: Console, request: Request) -> Response:
    return answered(request, console.streams.state())


async def samples(console: Console, request: Request) -> Response:
    return answered(request, [*console.questions.samples])


async def about(console: Console, request: Request) -> Response:
    return answered(request, console.about(await console.visitor(request)))


def reading(read: Callable[[Console, Query], object]) -> Handler:
    """Return the handler of a question that blocks. It gets the query and the parts of the path."""

    async def handler(console: Console, request: Request) -> Response:
        console.streams.touch()
        await console.in_thread(console.wait)
        return answered(request, await console.in_thread(lambda: read(console, {**request.query_params, **request.path_params})))

    return handler


def number(query: Query, name: str, default: Default, least: int = 0) -> int | Default:
    """Return a number of a query; the default where it is empty. BadQuery."""
    text = query.get(name, "")
    if not text:
        return default
    if text.isascii() and text.isdigit() and len(text) <= 16 and least <= int(text) <= NUMBER_MAX:
        return int(text)
    raise BadQuery(f"{name} is {text[:40]!r}; send a whole number from {least} to {NUMBER_MAX}")


def _window(query: Query) -> tuple[str, int, int]:
    """Return order, start and length of the rows that a query wants."""
    return query.get("sort", ""), number(query, "from", 0), number(query, "limit", 50)


def _wanted(query: Query) -> RowFilter:
    """Return the filters of a query; `internal=0` leaves internal topics out."""
    name, text, state = (query.get(each, "") for each in ("topic", "q", "state"))
    return RowFilter(name, text, query.get("internal") != "0", number(query, "broker", None), state)


def _named_topic(console: Console, query: Query) -> tuple[str, Mapping[str, int | str | bool]]:
    """Return the name and the row of the topic that a query names. ApiError, also without the partition that it names."""
    name, partition = query["topic"], number(query, "partition", 0)
    row = console.known_rows().topic(name)
    if row is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}; /api/v1/topics has them all")
    if partition >= int(row["partitions"]):
        text = f"{name} has no partition {partition}; choose one from 0 to {int(row['partitions']) - 1}"
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    return name, row


def _named_broker(console: Console, query: Query) -> int:
    """Return the broker that a query names. ApiError."""
    broker, known = number(query, "broker", -1), console.broker_ids()
    if broker not in known:
        text = f"no broker {query['broker']} is registered; choose one of {', '.join(map(str, sorted(known)))}"
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
    return broker


def _topic(console: Console, query: Query) -> object:
    """Return the row of a topic and its effective configs."""
    name, row = _named_topic(console, query)
    described = console.client.describe_configs([(2, name)], timeout_ms=CALL_MS)
    return {"topic": row, "configs": next(iter(described.values()), ())}


def _disks(console: Console, query: Query) -> object:
    """Return the replicas in the log directories of one broker or of all, of one topic or partition or of all."""
    brokers = [_named_broker(console, query)] if query.get("broker") else None
    if not query.get("topic"):
        if query.get("partition"):
            raise BadQuery("a partition needs its topic; send topic=NAME too")
        return console.client.all_log_dirs(LogDirFilter(), brokers=brokers)
    topic, partition = _named_topic(console, query)[0], number(query, "partition", None)
    wanted = LogDirFilter(topics=[topic]) if partition is None else LogDirFilter(partitions=[(topic, partition)])
    return console.client.all_log_dirs(wanted, brokers=brokers)


def _broker_configs(console: Console, query: Query) -> object:
    """Return the configs of a broker that are not defaults. The broker itself is asked."""
    resource = (4, str(_named_broker(console, query)))
    described = console.client.describe_configs([resource], timeout_ms=CALL_MS)
    return [each for each in described.get(resource, ()) if each.config_source != Source.DEFAULT]


def _groups(console: Console, query: Query) -> object:
    return console.groups.some(query.get("q", ""), query.get("topic", ""), "internal" in query, *_window(query))


def _events(console: Console, query: Query) -> object:
    edges = number(query, "before", None), number(query, "after", 0)
    kind, about, internal = query.get("kind", ""), query.get("about", ""), query.get("internal") != "0"
    return console.known_past().events(*edges, kind, about, number(query, "limit", 100, least=1), internal=internal)


def _history(console: Console, query: Query) -> object:
    try:
        return console.known_past().history(query["topic"], number(query, "partition", 0))
    except LookupError as error:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{error.args[0]}; /api/v1/topics has all topics") from None


async def stream(console: Console, request: Request) -> Response:
    """Stream what happens; the rights of the visitor are asked for again now and then."""
    if console.streams.count >= STREAMS_MAX:
        raise Refusal(503, f"{STREAMS_MAX} pages are open already; close some")
    key, last = request.cookies.get(COOKIE, ""), request.headers.get("last-event-id", "")
    last_id = int(last) if last.isascii() and last.isdigit() and len(last) <= 100 else None

    async def messages() -> AsyncGenerator[bytes]:
        checked_at = trio.current_time()
        async with aclosing(console.streams.open(partial(console.missed, last_id))) as found:
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


async def _election(console: Console, request: Request) -> Response:
    data, epoch = console.settings.data, number(request.query_params, "epoch", 0)
    return answered(request, await trio.to_thread.run_sync(picture, data, epoch, limiter=console.drawing, abandon_on_cancel=True))


def _orders(console: Console, query: Query) -> object:
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


def _fault_command(console: Console, query: Query) -> object:
    """Return an order as a command."""
    try:
        order = msgspec.json.decode(query.get("order", ""), type=FaultOrder)
    except msgspec.MsgspecError as error:
        raise BadQuery(f"the order is not what was expected: {error}; GET /api/v1/faults has every order") from None
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
    "topics": reading(lambda console, query: console.known_rows().topic_page(_wanted(query), *_window(query))),
    "topics/{topic}": reading(_topic),
    "partitions": reading(lambda console, query: console.known_rows().partition_page(_wanted(query), *_window(query))),
    "partitions/{topic}/{partition}/history": reading(_history),
    "disks": reading(_disks),
    "records": reading(_events),
    "image": reading(lambda console, query: console.known_past().tree(*(query.get(name, "") for name in ("at", "path", "q")))),
    "diff": reading(
        lambda console, query: console.known_past().difference(*(query.get(name, "") for name in ("from", "to", "q")))
    ),
    "faults": reading(_orders),
    "faults/command": reading(_fault_command),
    "brokers/{broker}/configs": reading(_broker_configs),
    "brokers/{broker}/drain": reading(lambda console, query: drain(console.known_image(), _named_broker(console, query))),
    "groups": reading(_groups),
    "groups/{group:path}": reading(lambda console, query: console.groups.one(query["group"])),
    "election": _election,
    "marks": reading(lambda console, query: console.known_past().marks()),
}
