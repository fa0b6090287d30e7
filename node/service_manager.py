"""Messages of a node to systemd, or to another service manager with its protocol (sd_notify): ready, stopping, alive.

Each is a datagram to the socket in $NOTIFY_SOCKET. Nothing happens without that variable.
"""

from __future__ import annotations

import logging
import os
import socket
from functools import cache

import trio

logger = logging.getLogger("kraftlab.node")

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


def notify(state: str) -> None:
    """Send a state. A socket that cannot be reached gives a warning, once for each reason."""
    name = os.environ.get("NOTIFY_SOCKET")
    if not name:
        return
    address = b"\0" + os.fsencode(name[1:]) if name.startswith("@") else os.fsencode(name)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(state.encode(), address)
    except OSError as error:
        _warn(name, error.strerror or str(error))


@cache
def _warn(name: str, reason: str) -> None:
    logger.warning("the service manager cannot be told of this node: NOTIFY_SOCKET=%s: %s", name, reason)


async def serve_ready() -> None:
    """Say that the node is ready, then twice per $WATCHDOG_USEC that its event loop turns, if that is set for this process."""
    notify(READY)
    period_us, pid = os.environ.get("WATCHDOG_USEC", ""), str(os.getpid())
    if not period_us.isdecimal() or int(period_us) == 0 or os.environ.get("WATCHDOG_PID", pid) != pid:
        return
    while True:
        notify(ALIVE)
        await trio.sleep(int(period_us) / 2_000_000)
