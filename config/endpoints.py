"""Addresses in text form."""

from __future__ import annotations

import re

from kraftlab.common.endpoint import Endpoint

from .errors import ConfigError

KAFKA, GRPC = "kafka", "grpc"
"""Protocols of a server list: `kafka://host:port`, `grpc://host:port`."""
_ENDPOINT = re.compile(r"(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:\[\]@/]*)):(?P<port>[0-9]{1,5})")


def parse_endpoint(text: str) -> Endpoint | None:
    """Parse `host:port` or `[v6]:port` (host may be empty). None for any other text, or a port outside 1…65535."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 1 <= int(match["port"]) <= 65535 or not _has_labels(match["host"] or ""):
        return None
    return Endpoint(match["v6"] if match["v6"] is not None else match["host"], int(match["port"]))


def _has_labels(host: str) -> bool:
    """Return True if a resolver can be asked for the host. Others raise UnicodeError or TypeError where they are used."""
    if host.isascii():
        return not host or all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def parse_servers(text: str) -> tuple[Endpoint, ...]:
    """Parse a --bootstrap-server list `[protocol://]host:port[,…]`. ConfigError names the faulty entry."""
    found = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        endpoint = parse_endpoint(item.removeprefix(f"{KAFKA}://").removeprefix(f"{GRPC}://"))
        if endpoint is None or not endpoint.host:
            raise ConfigError(f"{item!r} is not host:port with a port from 1 to 65535; write for example 127.0.0.1:9092")
        found.append(endpoint)
    if not found:
        raise ConfigError("no bootstrap server is named; write for example 127.0.0.1:9092")
    return tuple(dict.fromkeys(found))


def named_protocol(text: str) -> str | None:
    """Return the protocol that a server list names, None without one. ConfigError for entries of different protocols."""
    items = [part.strip() for part in text.split(",") if part.strip()]
    named = {next((each for each in (KAFKA, GRPC) if item.startswith(f"{each}://")), None) for item in items}
    if {KAFKA, GRPC} <= named:
        raise ConfigError(f"{text!r} names servers of two protocols; name the servers of one cluster, with one protocol")
    return next(filter(None, named), None)
