"""Addresses of listeners."""

from __future__ import annotations

import msgspec

ENDPOINTS_MAX = 16
NAME_LENGTH_MAX = 255
PORT_MAX = 65535


class Endpoint(msgspec.Struct, frozen=True, array_like=True):
    """Address of one listener of a node."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def are_sane_endpoints(endpoints: dict[str, Endpoint]) -> bool:
    """Return True for at most `ENDPOINTS_MAX` endpoints, each with a listener name, a host and a port in range."""
    return len(endpoints) <= ENDPOINTS_MAX and all(
        0 < len(name) <= NAME_LENGTH_MAX and 0 < len(endpoint.host) <= NAME_LENGTH_MAX and 0 < endpoint.port <= PORT_MAX
        for name, endpoint in endpoints.items()
    )
