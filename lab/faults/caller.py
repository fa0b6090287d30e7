"""Sends orders to the cluster that runs on a directory."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec

from .. import cluster_plan
from ..cluster_plan import ClusterError
from ..locking import is_in_use
from .orders import SOCKET_NAME, Done, Order, OrderRefused
from .paths import address

TIMEOUT_S = 60.0
_decode = msgspec.json.Decoder(Done | OrderRefused).decode


class OrderFailed(ClusterError):
    """The cluster takes orders, and refused this one or failed to carry it out."""


def give(data: Path, order: Order, *, timeout_s: float = TIMEOUT_S) -> Done:
    """Return when the order was executed. OrderFailed; ClusterError if no cluster with --allow-chaos runs there."""
    path = data.absolute() / SOCKET_NAME
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        try:
            with address(path) as name:
                connection.connect(name)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            raise ClusterError(_nobody_listens(data)) from None
        except PermissionError:
            raise ClusterError(f"{path} belongs to another user; only the user who started the cluster can break it") from None
        try:
            connection.sendall(msgspec.json.encode(order) + b"\n")
            with connection.makefile("rb") as lines:
                answer: Done | OrderRefused = _decode(lines.readline())
        except (TimeoutError, OSError, msgspec.MsgspecError) as error:
            raise ClusterError(
                f"the cluster on {data} did not answer the order {order.order!r} ({error}); is it stopping?"
            ) from error
    if isinstance(answer, OrderRefused):
        raise OrderFailed(answer.error)
    return answer


def _nobody_listens(data: Path) -> str:
    if is_in_use(data):
        return (
            f"the cluster that runs on {data} takes no orders; stop it, and start it with kraftlab up --allow-chaos, "
            "or with kraftlab chaos test --leave-running"
        )
    start = f"kraftlab up --allow-chaos --data {data}"
    plan = cluster_plan.load(data)
    if plan is not None:
        sizes = f"controllers: {len(plan.controllers)}, brokers: {len(plan.brokers)}"
        return f"the cluster on {data} is stopped ({sizes}); start it with: {start}"
    return f"{data} holds no cluster; start one with: {start}"
