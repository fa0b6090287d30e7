"""Reports to the active controller, every second, of the progress of replicas that this broker fills for running moves.

Theory of operation. A report is complete, so the controller keeps no state of moves that are over. It names each replica of a
running reassignment that is here and not in sync, added or kept, with its bytes, the bytes that it lacks, their rate and the last
error; and the size of each partition that is led here and moves or waits in the queue of moves. While there is nothing to
report, no report is sent, except for one last empty one. A lost report is replaced by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import chain

import msgspec
import trio

from kraftlab.metadata.peer_rpc import Api, MoveProgress, MoveProgressRequest, PartitionSize

from ..control.controller_channel import NO_ANSWER, Requests
from ..log.disks import one_turn
from ..replica_manager import ReplicaManager
from ..replication.partition import FollowerRole, LeaderRole, Partition

logger = logging.getLogger("kraftlab.broker.moves")

INTERVAL_S = 1.0
TIMEOUT_MS = 2000
SIZES_MAX = 10_000

_encode = msgspec.msgpack.Encoder().encode


class MoveReports:
    """`run` reports until cancelled."""

    def __init__(self, channel: Requests, replicas: ReplicaManager, broker_epoch: Callable[[], int]) -> None:
        self._channel = channel
        self._replicas = replicas
        self._broker_epoch = broker_epoch
        self._has_reported = False
        self.last = MoveProgressRequest(replicas.broker_id, -1, (), ())
        """The last report that was made."""

    async def run(self) -> None:
        while True:
            await trio.sleep(INTERVAL_S)
            await one_turn(self._send)

    async def _send(self) -> None:
        report = self.last = self.report()
        has_content = bool(report.replicas or report.sizes)
        if not has_content and not self._has_reported:
            return
        try:
            await self._channel.request(Api.MOVE_PROGRESS, _encode(report), timeout_ms=TIMEOUT_MS)
            self._has_reported = has_content
        except NO_ANSWER as error:
            logger.debug("progress of moves could not be reported: %s", error)

    def report(self) -> MoveProgressRequest:
        """Make a report of the present state."""
        return MoveProgressRequest(self._replicas.broker_id, self._broker_epoch(), tuple(self._filling()), tuple(self._sizes()))

    def _filling(self) -> list[MoveProgress]:
        found: list[MoveProgress] = []
        image, broker_id = self._replicas.image, self._replicas.broker_id
        for topic_id, numbers in image.topics.reassigning.items():
            for number in numbers:
                state = image.topics.partition(topic_id, number)
                if state is None or broker_id not in state.target or broker_id in state.isr:
                    continue
                partition = self._replicas.partitions.get((topic_id, number))
                if partition is not None:
                    found.append(self._progress(partition))
        return found

    def _progress(self, partition: Partition) -> MoveProgress:
        log = partition.log
        if log is None:
            return MoveProgress(
                *partition.id, 0, -1, 0.0, False, "no log yet; if this lasts, its log directory is offline or full"
            )
        filling = partition.role.filling if isinstance(partition.role, FollowerRole) else None
        if filling is None:
            return MoveProgress(*partition.id, log.size_bytes, -1, 0.0)
        is_throttled = bool(self._replicas.follower_gates(partition))
        return MoveProgress(
            *partition.id, log.size_bytes, filling.bytes_left, filling.bytes_per_second, is_throttled, filling.error
        )

    def _sizes(self) -> list[PartitionSize]:
        found: list[PartitionSize] = []
        image = self._replicas.image
        for topic_id, numbers in chain(image.moves.queued.items(), image.topics.reassigning.items()):
            for number in numbers:
                partition = self._replicas.partitions.get((topic_id, number))
                if partition is not None and isinstance(partition.role, LeaderRole) and partition.log is not None:
                    found.append(PartitionSize(topic_id, number, partition.log.size_bytes))
                if len(found) >= SIZES_MAX:
                    return found
        return found
