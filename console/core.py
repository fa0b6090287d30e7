"""One console: its settings, the cluster that it shows, and its answers.

What blocks runs in a few threads; the event loop only passes messages on.
"""

import gzip
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response

from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.lab.cluster_plan import ClusterError
from kraftlab.lab.faults.caller import OrderFailed
from kraftlab.metadata.acls import Operation
from kraftlab.metadata.image import MetadataImage

from .follower import Follower
from .groups import Groups
from .past import Past
from .questions import Questions
from .rows import BadQuery, ImageRows, Rows
from .streams import Streams, encode
from .visitors import COOKIE, Refusal, Visitor, Visitors, check_write

BODY_BYTES_MAX = 1 << 20
BODY_S = 10.0
COMPRESSED_FROM_BYTES = 1024
THREADS = 8
IMAGE_S = 3.0
POLLED_S = 2.0
"""Age at which the topics of Apache Kafka are asked for again."""
MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.GROUP_ID_NOT_FOUND)
"""Errors about things that do not exist: HTTP's 404."""
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
        self.logging_in = trio.CapacityLimiter(2)
        """Logins at a time, each with a wait after a wrong password: so guessing is slow, and takes no thread from the pages."""
        self.breaking = trio.CapacityLimiter(1)
        """A cluster takes one order at a time; those that wait take no thread from the pages."""
        self.drawing = trio.CapacityLimiter(1)
        """An election is megabytes of files to read; those that wait take no thread from the pages either."""

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
            self._follower.is_current.wait(IMAGE_S)

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
            start = (
                "kraftlab up --allow-chaos --console, or kraftlab console --data DIR --allow-chaos for a cluster of --allow-chaos"
            )
            return f"this console offers no faults; start it with {start}"
        if self.settings.read_only:
            return "this console was started with --read-only; use kraftlab cluster"
        if not visitor.may(Operation.ALTER):
            return (
                f"user {visitor.user} has no right to ALTER the cluster, which faults need; "
                f"kraftlab acls --add --allow-principal User:{visitor.user} --operation alter --cluster gives it"
            )
        return ""

    # -- requests ----------------------------------------------------------------------------------------------------------

    async def visitor(self, request: Request, *, now: bool = False) -> Visitor:
        """Return who asks, with rights of the last minute, or of this moment. Refusal, ApiError."""
        key = request.cookies.get(COOKIE, "")
        return await self.in_thread(lambda: self.visitors.of(key, now=now))

    async def body(self, request: Request, kind: type[T]) -> T:
        """Return the JSON of a request. BadQuery, Refusal."""
        check_write(request.headers, request.url.scheme)
        data = bytearray()
        with trio.move_on_after(BODY_S) as reading:
            async for part in request.stream():
                data += part
                if len(data) > BODY_BYTES_MAX:
                    raise Refusal(413, f"a request has at most {BODY_BYTES_MAX} bytes; send several")
        if reading.cancelled_caught:
            raise Refusal(408, f"the request has not ended within {BODY_S:g} s; send it again")
        try:
            return msgspec.json.decode(bytes(data), type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadQuery(f"the body is not what was expected: {error}; docs/console.md has examples") from None

    def known_past(self) -> Past:
        if self.past is None:
            raise BadQuery("this cluster does not show its metadata log; ask a kraftlab cluster")
        return self.past

    def known_image(self) -> MetadataImage:
        return self.known_past().newest()[1]

    def broker_ids(self) -> set[int]:
        """Return the registered brokers. Blocks for a cluster of Apache Kafka, which is asked."""
        if self._follower is not None:
            return {*self.known_image().cluster.brokers}
        return {each.broker_id for each in self.client.describe_cluster(timeout_ms=5000).brokers}

    def missed(self, last_id: int | None) -> list[bytes]:
        """Return what a page missed of the metadata log after an event id."""
        return [] if self._follower is None else self._follower.known.missed(last_id)

    def known_rows(self) -> Rows:
        rows = self.rows()
        if rows is None:
            raise BadQuery("the metadata log has not been read yet; is the cluster up?")
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
    status = 400
    document: dict[str, object] = {"name": "BAD_REQUEST", "message": str(error)}
    match error:
        case Refusal():
            status, document["name"] = error.status, "REFUSED"
        case ApiError():
            status = 404 if error.code in MISSING else 409
            document = {"name": error.code.name, "code": error.code.value, "message": error.message or error.code.message}
        case OrderFailed():
            status, document["name"] = 409, "REFUSED"
        case ClusterUnreachable() | ClusterError():
            status, document["name"] = 503, "UNREACHABLE"
        case LookupError() if error.args:
            document["message"] = str(error.args[0])
    return answered(request, {"error": document}, status)
