"""Brokers that lead what the one under test follows: the real leader's side, with a log of their own that no crash touches.

What one of them has, it was told to append; who leads is said by the metadata of the broker under test. So a script can let a
leader go whose last records nobody else had, and another one lead that has others in their place: then the replica has to cut its
log, and whatever is being copied from it as well. None of these records was committed: the third replica had none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import trio

from kraftlab.metadata.image import PartitionImage
from kraftlab.metadata.peer_rpc import Api, IsrChange, ReplicaFetchRequest
from kraftlab.metadata.uuids import Uuid
from kraftlab.quorum.core.types import Endpoint
from kraftlab.wire.transport import PeerUnreachable

from ..log.disks import Arguments, Disks, Result
from ..log.partition_log import LogConfig, PartitionLog
from ..log.record_batch import Record, build_batch
from ..replication.byte_gate import ByteGate
from ..replication.fetch_service import FetchService
from ..replication.partition import Partition, ReplicaId

THIRD = 9
"""A replica in sync, somewhere else."""
STEP_S = 0.001
"""Time that a piece of disk work takes."""
_TRAVEL_S = 0.001
_LAG_TIME_MAX_S = 30.0


async def on_the_loop(
    limiter: trio.CapacityLimiter | None,
    work: Callable[Arguments, Result],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> Result:
    """Do disk work in virtual time, one piece after the other, on the thread that is recorded."""
    await trio.sleep(STEP_S)
    return work(*args, **kwargs)


class OtherBroker:
    """One of them. It is what its partition and its fetch service see of a broker."""

    def __init__(
        self, broker_id: int, directory: Path, topic: tuple[str, Uuid, int], state: PartitionImage, heard: Callable[[int], None]
    ) -> None:
        """`heard` is told, with each fetch, up to where the follower's log agrees with this one."""
        self.broker_id = broker_id
        self.disks = Disks(lambda failure: None, on_the_loop)
        self.lag_time_max_s = _LAG_TIME_MAX_S
        self._heard = heard
        self._partition = Partition(*topic, state, self)
        directory.mkdir(parents=True)
        name, topic_id, number = topic
        self.log = PartitionLog.open(
            directory, topic=name, partition=number, topic_id=topic_id, directory_id=bytes(16), config=LogConfig()
        )
        self._partition.log = self.log
        self._service = FetchService(self, ByteGate())

    async def lead(self, state: PartitionImage, batches: Sequence[bytes]) -> None:
        """As `state` says, with a log of these batches. The third replica has them too, and gets no more: they are committed."""
        if batches:
            self.log.append_as_follower(b"".join(batches))
        await self._partition.lead(state)
        self._partition.follower_fetched(THIRD, self.log.log_end_offset, 0, 0)

    async def append(self, values: Sequence[str]) -> list[bytes]:
        """A batch for each; as they lie in the log."""
        stored = []
        for value in values:
            batch = build_batch([Record(b"key", value.encode(), 1000)])
            base, _, _ = await self._partition.append_as_leader(batch, keep_offsets=False)
            stored.append(self.log.read(base, len(batch)))
        return stored

    def __repr__(self) -> str:
        return f"broker {self.broker_id}"

    async def fetch(self, request: ReplicaFetchRequest) -> object:
        """What the follower is answered."""
        for wanted in request.partitions:
            _, end = self.log.end_offset_for(wanted.last_fetched_epoch)
            self._heard(min(wanted.fetch_offset, end))
        return await self._service.fetch(request)

    # -- what a partition and a fetch service ask of their broker -------------------------------------------------------------

    def hosted(self, replica: ReplicaId) -> Partition:
        assert replica == self._partition.id, f"nobody else fetches {replica}"
        return self._partition

    def is_leader_throttled(self, partition: Partition, follower_id: int) -> bool:
        return False

    def follower_heard(self, follower_id: int) -> None:
        """Nobody is too slow here."""

    def heard_s(self, broker_id: int) -> float:
        return trio.current_time()

    def registered_epoch(self, broker_id: int) -> int | None:
        return 0

    def is_active(self, broker_id: int) -> bool:
        return True

    def min_insync_replicas(self, topic: str) -> int:
        return 1

    def propose_isr(self, partition: Partition, change: IsrChange) -> None:
        raise AssertionError(f"{partition} of broker {self.broker_id} wants {change}, and sets stay as they are")

    def withdraw_isr(self, partition: Partition) -> None:
        """There is nothing to withdraw."""


class OtherBrokers:
    """Those that can be reached, by their port."""

    def __init__(self) -> None:
        self._by_port: dict[int, OtherBroker] = {}

    def add(self, port: int, broker: OtherBroker) -> None:
        self._by_port[port] = broker

    def remove(self, port: int) -> None:
        """Nobody reaches it any more, if anybody did."""
        broker = self._by_port.pop(port, None)
        if broker is not None:
            broker.log.close()

    async def request(self, endpoint: Endpoint, api: int, body: bytes, *, timeout_ms: int) -> bytes:
        """A fetch. PeerUnreachable."""
        assert api == Api.REPLICA_FETCH, f"nothing else is asked of other brokers, but API {api} was"
        await trio.sleep(_TRAVEL_S)
        broker = self._by_port.get(endpoint.port)
        if broker is None:
            raise PeerUnreachable(f"there is no broker at {endpoint}")
        answer = await broker.fetch(msgspec.msgpack.decode(body, type=ReplicaFetchRequest))
        await trio.sleep(_TRAVEL_S)
        return msgspec.msgpack.encode(answer)
