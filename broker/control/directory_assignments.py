"""Reports to the controller of the directory in which each replica of this broker is (AssignReplicasToDirs, KIP-858).

The newest assignment of a replica wins. One request is in flight, with at most 2250 assignments; after a failure the pause
doubles from 100 ms to 10 s. Assignments that the metadata already has, and those of replicas that have left this broker, are not
sent. Permanent errors (unknown topic or partition, not a replica) drop the assignment: the metadata log is about to explain them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from kraftlab.common.decoding import Decoder
from kraftlab.common.errors import ErrorCode
from kraftlab.common.signal import Signal
from kraftlab.common.uuids import Uuid
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.peer_rpc import Api, AssignReplicasToDirsRequest, AssignReplicasToDirsResponse, DirectoryAssignment

from .controller_channel import Requests, ask

logger = logging.getLogger("kraftlab.broker.directories")

ASSIGNMENTS_MAX = 2250
BACKOFF_S = 0.1
BACKOFF_MAX_S = 10.0
REQUEST_TIMEOUT_MS = 5000
_FINAL = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)

_response = Decoder(AssignReplicasToDirsResponse)


class DirectoryAssignments:
    """Queue of assignments. `image` returns the published metadata."""

    def __init__(
        self, channel: Requests, broker_id: int, broker_epoch: Callable[[], int], image: Callable[[], MetadataImage]
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._image = image
        self._pending: dict[tuple[Uuid, int], Uuid] = {}
        self.on_known: Callable[[tuple[Uuid, int], Uuid], object] = lambda replica, directory_id: None
        """Called with a replica and a directory that need no report, since the published metadata names that directory."""
        self._wake = Signal()

    @property
    def pending(self) -> int:
        return len(self._pending)

    def assign(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        self._pending.pop((topic_id, partition), None)
        self._pending[topic_id, partition] = directory_id
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        backoff_s = BACKOFF_S
        while True:
            self._drop_obsolete()
            if not self._pending:
                await self._wake.wait()
            elif await self._send():
                backoff_s = BACKOFF_S
            else:
                await trio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    def _drop_obsolete(self) -> None:
        topics = self._image().topics
        for (topic_id, number), directory_id in list(self._pending.items()):
            partition = topics.partition(topic_id, number)
            known = partition.directory_of(self._broker_id) if partition is not None else None
            if known is None or known == directory_id:
                del self._pending[topic_id, number]
            if known == directory_id:
                self.on_known((topic_id, number), directory_id)

    async def _send(self) -> bool:
        """Send one request; False if it has to be sent again."""
        sent = dict(list(self._pending.items())[:ASSIGNMENTS_MAX])
        assignments = tuple(DirectoryAssignment(directory, topic_id, number) for (topic_id, number), directory in sent.items())
        request = AssignReplicasToDirsRequest(self._broker_id, self._broker_epoch(), assignments)
        response = await ask(self._channel, Api.ASSIGN_REPLICAS_TO_DIRS, request, _response, timeout_ms=REQUEST_TIMEOUT_MS)
        if response is None:
            return False
        if response.error != ErrorCode.NONE:
            # Metadata without directories is not an error: there is nothing to report.
            level = logging.DEBUG if response.error == ErrorCode.UNSUPPORTED_VERSION else logging.INFO
            logger.log(level, "the controller answered %d to directory assignments: %s", response.error, response.message)
            return False
        settled = True
        for result in response.results:
            key = (result.topic_id, result.partition)
            if result.error not in _FINAL:
                settled = False
            elif self._pending.get(key) == sent.get(key):
                self._pending.pop(key, None)
        return settled
