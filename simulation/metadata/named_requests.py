"""Requests with ids are applied once, and a retry gets the first answer (M10).

Theory of operation. The committed log shows each request with an id once, with its answer. Every controller must answer such a
request with that answer and its offset, each time. A request is only refused as too old if its client has sent five newer ones,
and never as another request than the one in the log.

An effect in the log need not come with an answer there, so effects are judged by themselves. Each request that sets the metrics
of subscriptions (KIP-714) has a value of its own. A value that comes back to a subscription was written twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import chain
from typing import Any

from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import Uuid
from kraftlab.config.resources import ResourceType
from kraftlab.controller.engine import exactly_once
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.requests import KEPT_PER_CLIENT, AnsweredRequest, unpacked
from kraftlab.rpc.server import Call

METRICS = "metrics"
SUBSCRIPTIONS = tuple(f"subscription-{number}" for number in range(10))
PAIRS = tuple((f"first-{number}", f"last-{number}") for number in range(10))
"""Subscriptions that are only set together, so that every reader sees the same metrics in both (M9)."""


def metrics_of(image: MetadataImage, subscription: str) -> str | None:
    """Return the metrics of a subscription, None if it has none."""
    return image.config(ResourceType.CLIENT_METRICS, subscription, METRICS)


class NamedRequests:
    """The requests with ids in the committed log."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._image = MetadataImage()
        self._sent: dict[Uuid, int] = {}
        """The newest sequence of each client that has reached a controller."""
        self._applied: dict[tuple[Uuid, int], AnsweredRequest] = {}
        self._values: dict[str, set[str]] = defaultdict(set)

    def extend(self, image: MetadataImage) -> None:
        """Judge the image after another batch."""
        before, self._image = self._image, image
        if image.requests is not before.requests and image.requests.newest is not None:
            self._extend_answers(image.requests.newest, image)
        if image.configs is not before.configs:
            self._extend_values(before, image)

    def _extend_answers(self, client_id: Uuid, image: MetadataImage) -> None:
        client = image.requests.get(client_id)
        assert client is not None, "it was answered just now"
        for answered in client.answered:
            if self._applied.setdefault((client_id, answered.sequence), answered) != answered:
                self._violated(
                    f"M10 {_name(client_id, answered.sequence)} is applied twice, the second time at {image.provenance}"
                )

    def _extend_values(self, before: MetadataImage, image: MetadataImage) -> None:
        for name in chain(SUBSCRIPTIONS, *PAIRS):
            value = metrics_of(image, name)
            if value is not None and value != metrics_of(before, name):
                if value in self._values[name]:
                    self._violated(f"M10 {name} is {value} for the second time at {image.provenance}")
                self._values[name].add(value)

    def arrived(self, call: Call) -> None:
        """Note that a controller has got the request."""
        identity = exactly_once.identity_of(call.api, call.principal, call.request)
        if identity is not None:
            self._sent[identity.client_id] = max(self._sent.get(identity.client_id, 0), identity.sequence)

    def answered(self, call: Call, response: Any) -> None:
        """Judge an answer, which may be an error."""
        identity = exactly_once.identity_of(call.api, call.principal, call.request)
        if identity is None:
            return
        applied = self._applied.get((identity.client_id, identity.sequence))
        code, name = response.header.error_code, _name(identity.client_id, identity.sequence)
        newer = self._sent[identity.client_id] - identity.sequence
        if code == ErrorCode.NONE:
            if applied is None or applied.digest != identity.digest:
                self._violated(f"M10 {name} is answered, and it is not in the log")
            elif applied.end_offset != response.header.metadata_offset or _body(unpacked(applied.answer), response) != _body(
                response.SerializeToString(), response
            ):
                self._violated(f"M10 {name} is answered at {response.header.metadata_offset}, and the log says {applied}")
        elif code == ErrorCode.INVALID_REQUEST and applied is not None and applied.digest == identity.digest:
            self._violated(f"M10 {name} is taken for another: {response.header.error_message}")
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and newer < KEPT_PER_CLIENT:
            self._violated(f"M10 {name} is refused as too old, and there are {newer} newer ones")


def _name(client_id: Uuid, sequence: int) -> str:
    return f"request {sequence} of client {client_id.hex()[:8]}"


def _body(data: bytes, response: Any) -> Any:
    """Return a response of that type without its header."""
    parsed = type(response).FromString(data)
    parsed.ClearField("header")
    return parsed
