"""A question to a broker: does it lead a partition? The metadata may still name a leader that has died or restarted."""

from __future__ import annotations

import msgspec

from kraftlab.common.decoding import Decoder
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.peer_rpc import Api, EpochEndsRequest, EpochEndsResponse, WantedEpoch
from kraftlab.wire.transport import PeerError, PeerTimeout, PeerUnreachable

from .fetcher import Leaders
from .partition import ReplicaId

ANSWER_TIMEOUT_MS = 2000

_response = Decoder(EpochEndsResponse)


async def leads(leaders: Leaders, endpoint: Endpoint, leader_id: int, replica: ReplicaId, leader_epoch: int) -> bool:
    """Return True if the broker answers as the leader of that epoch. A broker that has restarted since does not."""
    request = EpochEndsRequest((WantedEpoch(*replica, leader_epoch, leader_epoch),))
    body = msgspec.msgpack.encode(request)
    try:
        answer = await leaders.request(
            endpoint, Api.OFFSET_FOR_LEADER_EPOCH, body, timeout_ms=ANSWER_TIMEOUT_MS, node_id=leader_id
        )
        found = _response.decode(answer).partitions
    except (PeerError, PeerTimeout, PeerUnreachable, msgspec.MsgspecError):
        return False
    return [each.error for each in found] == [ErrorCode.NONE]
