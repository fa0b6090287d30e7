"""The entrance of a Kafka listener: TLS, and logins."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .sasl.exchange import Mechanism
from .users import ANONYMOUS

if TYPE_CHECKING:
    from kraftlab.wire.tls import TlsWire

FRAME_BYTES_MAX = 524_288
"""Default of sasl.server.max.receive.size."""


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The mechanisms of a listener by name, and connections.max.reauth.ms of each (0: sessions have no end)."""

    mechanisms: Mapping[str, Mechanism]
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    frame_bytes_max: int = FRAME_BYTES_MAX


def _nobody(certificate: bytes) -> str:
    return ANONYMOUS


def _nothing(wire: TlsWire) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Entrance:
    """Security of a listener. `context`: the present TLS context, None without TLS. `principal_of`: the principal of a
    certificate (DER); a ValueError refuses it. `sasl`: the logins, None without. `opened` is called with each TLS connection.
    """

    context: Callable[[], ssl.SSLContext] | None = None
    principal_of: Callable[[bytes], str] = _nobody
    sasl: SaslSettings | None = None
    opened: Callable[[TlsWire], None] = _nothing

    @property
    def is_open(self) -> bool:
        """True if nobody has to prove anything."""
        return self.context is None and self.sasl is None


OPEN = Entrance()
