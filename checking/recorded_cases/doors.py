"""Two ways to a node: gRPC, and the Kafka protocol. Both take a recorded request and return the response as recorded JSON.

The Kafka protocol has no `min_offset`, so its door first waits until the node has the newest metadata.
"""

from __future__ import annotations

import itertools
import socket
import struct
from typing import Protocol

import grpc

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.rpc.calls import CALLS, LISTENER

from .documents import Document
from .kafka_mapping import read_response, request_frame
from .lab import CALL_TIMEOUT_S, Lab, LabFault
from .mapping import build_request, neutral_response
from .paths import Value

SILENCE_S = 2.0
"""Time to wait for an answer where Kafka gave none."""
WIRE_GROUPS = ("h", "i")
"""Groups of scenarios that were recorded through the Kafka protocol: the data plane and consumer groups."""
_LENGTH = struct.Struct(">i")
_PREFIX = struct.Struct(">ii")


class NoAnswer(Exception):
    """The node closed the connection, stayed silent, or refused the whole call. The text says which."""


class NotAsked(Exception):
    """The step cannot be asked through this door. The text says why."""


class Door(Protocol):
    """A way to a node. `own_name`: the value of the option --door."""

    own_name: str

    def skip_reason(self, document: Document) -> str | None:
        """Return why a scenario cannot run through this door; None if it can."""
        ...

    def ask(self, lab: Lab, to: int | str, step: dict[str, Value], request: dict[str, Value]) -> dict[str, Value]:
        """Return the answer to a recorded request with own names. NoAnswer, NotAsked, CannotMap, LabFault."""
        ...

    def coordinator(self, lab: Lab, group: str) -> int:
        """Return the broker that coordinates a group. LabFault if there is none in time."""
        ...


class GrpcDoor:
    own_name = "grpc"

    def skip_reason(self, document: Document) -> str | None:
        return "runs through the Kafka protocol alone" if document.group in WIRE_GROUPS else None

    def ask(self, lab: Lab, to: int | str, step: dict[str, Value], request: dict[str, Value]) -> dict[str, Value]:
        if CALLS[step["api"]].place is LISTENER:
            if step.get("as"):
                raise NotAsked(f"{step['api']} is a call of KAFKA listeners, which have no SASL")
            return DOORS["kafka"].ask(lab, to, step, request)
        message = build_request(step["api"], step.get("version"), request, is_refused=step["response"] is None)
        try:
            return neutral_response(lab.send(to, step["api"], message, step.get("as")))
        except grpc.RpcError as error:
            raise NoAnswer(f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else str(error)) from error

    def coordinator(self, lab: Lab, group: str) -> int:
        raise LabFault("groups are reached through the Kafka protocol alone")


class KafkaDoor:
    own_name = "kafka"

    def __init__(self) -> None:
        self._correlation_ids = itertools.count(1)

    def skip_reason(self, document: Document) -> str | None:
        users = sorted({step["as"] for step in document.steps if step.get("as")})
        return f"asks as {', '.join(users)}, and KAFKA listeners have no SASL" if users else None

    def ask(self, lab: Lab, to: int | str, step: dict[str, Value], request: dict[str, Value]) -> dict[str, Value]:
        _catch_up(lab, to)
        correlation_id = next(self._correlation_ids)
        frame = request_frame(step["api"], step["version"], request, correlation_id)
        timeout_s = SILENCE_S if step["response"] is None else CALL_TIMEOUT_S
        at = lab.kafka(to)
        try:
            with socket.create_connection((at.host, at.port), timeout=timeout_s) as client:
                client.sendall(frame)
                with client.makefile("rb") as answers:
                    start = answers.read(_PREFIX.size)
                    if len(start) < _PREFIX.size:
                        raise NoAnswer("the connection was closed")
                    size, answered = _PREFIX.unpack(start)
                    rest = answers.read(size - _LENGTH.size)
        except OSError as error:
            raise NoAnswer(f"{type(error).__name__}: {error}") from error
        if answered != correlation_id:
            raise NoAnswer(f"the answer has correlation id {answered}, the request {correlation_id}")
        return read_response(step["api"], step["version"], start[_LENGTH.size :] + rest)

    def coordinator(self, lab: Lab, group: str) -> int:
        request = {"key_type": 0, "coordinator_keys": [group]}
        step = {"api": "FindCoordinator", "version": 4, "response": {}}
        found = -1

        def is_known() -> bool:
            nonlocal found
            (answer,) = self.ask(lab, lab.any_broker(), step, request)["coordinators"]
            found = answer["node_id"]
            return answer["error_code"] == 0 and lab.cluster.pid(found) is not None

        lab.wait_until(f"a broker coordinates group {group}", is_known)
        return found


def _catch_up(lab: Lab, to: int | str) -> None:
    """Wait until a node has all metadata that the active controller has committed."""
    for node in ("controller", to):
        lab.call(node, "ApiVersions", pb.ApiVersionsRequest())


DOORS: dict[str, Door] = {door.own_name: door for door in (GrpcDoor(), KafkaDoor())}
