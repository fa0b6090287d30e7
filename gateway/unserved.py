"""Clients that ask for what is not served: a line of the log for each, because some clients show nothing.

librdkafka asks for the coordinator of its transactions again and again, and its caller sees a timeout. The answer has the error
at which Apache Kafka's clients stop; the line names the client and says what to change there.
"""

from __future__ import annotations

import struct

from kraftlab.rpc.calls import OFFERS
from kraftlab.wire.parts import InMemory

from .codec import Header, KafkaRequest

PRODUCE, FIND_COORDINATOR, INIT_PRODUCER_ID = 0, 10, 22
TRANSACTION_KEY = 1
"""Key type of a transaction's coordinator."""
NO_TRANSACTIONS = "transactions are not served; leave transactional.id out of its configuration"
NO_NEW_GROUPS = "only classic groups are served; set group.protocol=classic in its configuration"
NO_SHARE_GROUPS = "share groups are not served; use a consumer group"
NO_STREAMS_GROUPS = "streams groups are not served; set group.protocol=classic in its configuration"
NO_TELEMETRY = "metrics of clients are not taken; set enable.metrics.push=false in its configuration"
NO_TOKENS = "delegation tokens are not served; set security.protocol=PLAINTEXT in its configuration"
OTHERS = "use a client that asks for the versions on offer first (ApiVersions)"
ADVICE = {
    **dict.fromkeys((24, 25, 26, 27, 28, 65), NO_TRANSACTIONS),
    **dict.fromkeys((38, 39, 40, 41), NO_TOKENS),
    **dict.fromkeys((68, 69), NO_NEW_GROUPS),
    **dict.fromkeys((71, 72), NO_TELEMETRY),
    **dict.fromkeys((*range(76, 80), 90, 91, 92), NO_SHARE_GROUPS),
    **dict.fromkeys((88, 89), NO_STREAMS_GROUPS),
}
"""API key of a request that is not served → the reason and the next step."""
PAGE = "see docs/kafka-clients.md"
CLIENTS_MAX = 1000
REMINDER_S = 3600.0

_NAMES = {offer.key: name for name, offer in OFFERS.items()}
_ID_LENGTH_AT = 8
_ID_LENGTH = struct.Struct(">h")


def refusal_of(head: Header, frame: InMemory) -> str:
    """Return the reason why a request is not served, which names it and its client."""
    name = _NAMES.get(head.key)
    asked = f"API {head.key}" if name is None else f"API {head.key} ({name})"
    return f"{asked} version {head.version} is not served, client {_client_id(frame)!r}: {ADVICE.get(head.key, OTHERS)}; {PAGE}"


def vain_request(request: KafkaRequest) -> str:
    """Return the name of a request that is served, but not for transactions, which it is about; "" for others."""
    key, body = request.header.key, request.body
    if key == FIND_COORDINATOR and body.key_type == TRANSACTION_KEY:
        return _NAMES[key]
    if key in (PRODUCE, INIT_PRODUCER_ID) and body.transactional_id is not None:
        return _NAMES[key]
    return ""


class VainClients:
    """Clients that the log names because they ask for transactions. A client is named again after REMINDER_S."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, str], float] = {}
        """(address, client id) → time of the line. The oldest is first."""

    def line_for(self, request: KafkaRequest, host: str, now_s: float) -> str:
        """Return the line about a request for transactions, "" for another request and for a client that was named lately."""
        name = vain_request(request)
        if not name:
            return ""
        client = host, request.client_id
        if now_s - self._named.get(client, -REMINDER_S) < REMINDER_S:
            return ""
        self._named.pop(client, None)
        self._named[client] = now_s
        if len(self._named) > CLIENTS_MAX:
            del self._named[next(iter(self._named))]
        return f"client {request.client_id!r} of {host} sent {name} for a transaction: {NO_TRANSACTIONS}; {PAGE}"


def _client_id(frame: InMemory) -> str:
    """Return the client id in a request's header, as far as there is one."""
    if len(frame) < _ID_LENGTH_AT + _ID_LENGTH.size:
        return ""
    start = _ID_LENGTH_AT + _ID_LENGTH.size
    (length,) = _ID_LENGTH.unpack_from(frame, _ID_LENGTH_AT)
    return bytes(frame[start : start + max(length, 0)]).decode(errors="replace")
