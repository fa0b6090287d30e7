"""One replica of this broker: its log, and its role in the replication of its partition.

Theory of operation. The role of a replica follows from metadata images alone (`lead`, `follow`). A leader keeps the progress of
each follower (`isr.py`), raises the high watermark as followers fetch, and proposes ISR changes to the controller, one at a time.
A follower appends the records of its fetcher and truncates its log where it diverges from the leader's. A replica whose log is
not there (its directory is offline) has no role; requests for it are answered with KAFKA_STORAGE_ERROR.

Two locks guard the log, outer first. `move_lock`: truncation, and each step that copies into a future log, so that a future log
never keeps records that the current one lost. `lock`: every change of the log or the role. So an append sees one role from
beginning to end, and a swap sees no append. Reads take neither: the log is safe for them, and a log that was swapped away raises
LogClosed, so that the read is repeated on the current log.

A task that waits for news (a fetch session, a producer with acks=all, a mover) leaves an event with `watch`; it is set at the
next change, once.

Followers that have all records send their position once and then rest: their fetches no longer name the partition. Before
an append, a follower at the log's end is noted as caught up as of its last fetch of any partition.

Not kept here: which bytes are durable. As in Kafka an append counts once the log has it; replication makes it safe.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import Uuid
from kraftlab.metadata.eligible_leaders import partition_min_isr
from kraftlab.metadata.image import PartitionImage
from kraftlab.metadata.peer_rpc import FetchedPartition, IsrChange, IsrChangeResult
from kraftlab.metadata.records import RECOVERED, RECOVERING
from kraftlab.records.errors import LogError

from ..log.disks import Disks
from ..log.expiry import has_expired
from ..log.partition_log import AppendInfo, PartitionLog
from .fill_progress import Filling
from .isr import (
    FollowerProgress,
    Reaction,
    advance_high_watermark,
    lagging_members,
    maximal_isr,
    may_join,
    reaction_to,
)
from .losses import Losses
from .replica_errors import ReplicaError
from .traffic import Traffic

logger = logging.getLogger("kraftlab.broker.partition")

UP_TO_HIGH_WATERMARK = -1
"""As the offset of a deletion."""

ReplicaId = tuple[Uuid, int]
"""Topic id and partition number."""


class BrokerContext(Protocol):
    """The part of the broker that a partition uses."""

    broker_id: int
    disks: Disks
    traffic: Traffic
    lag_time_max_s: float

    def last_fetch_s(self, broker_id: int) -> float:
        """Time of that broker's last fetch from this one, of any partition (trio's clock)."""

    def registered_epoch(self, broker_id: int) -> int | None:
        """The epoch of a broker's registration in the metadata, None if it is not registered."""

    def is_active(self, broker_id: int) -> bool:
        """Return True if the broker is registered, and neither fenced nor shutting down."""

    def is_eligible(self, state: PartitionImage, broker_id: int) -> bool:
        """Return True if the broker is active and its directory for the replica works: only then the controller takes it into the
        ISR.
        """

    def min_insync_replicas(self, topic: str) -> int: ...

    def propose_isr(self, partition: Partition, change: IsrChange) -> None:
        """Send the change to the controller; the answer comes back to `isr_answered`."""

    def withdraw_isr(self, partition: Partition) -> None: ...


class Watcher(Protocol):
    """Set at the next change (`trio.Event` is one)."""

    def set(self) -> None: ...


class LeaderRole:
    """State of a leader. `pending_isr`: an ISR that was proposed and not answered, or answered without certainty."""

    def __init__(self, epoch: int, epoch_start_offset: int) -> None:
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        self.progress: dict[int, FollowerProgress] = {}
        self.pending_isr: tuple[int, ...] | None = None


class FollowerRole:
    """State of a follower. `leader_id` -1: no leader. `filling`: progress of a replica that is out of sync.
    `leader_high_watermark`: as of the last answer.
    """

    def __init__(self, epoch: int, leader_id: int) -> None:
        self.epoch = epoch
        self.leader_id = leader_id
        self.leader_high_watermark = 0
        self.filling: Filling | None = None


class Partition:
    """All methods belong to the event loop."""

    def __init__(self, topic: str, topic_id: Uuid, number: int, state: PartitionImage, context: BrokerContext) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.number = number
        self.state = state
        self.log: PartitionLog | None = None
        self.is_being_placed = True
        """True until the replica has a log, or a first attempt to give it one has failed."""
        self.future: PartitionLog | None = None
        self.role: LeaderRole | FollowerRole | None = None
        self.lock = trio.Lock()
        self.move_lock = trio.Lock()
        self.losses = Losses()
        self.traffic = context.traffic.of(topic)
        self.offline_reason = f"the log directory of {self} is offline on this broker"
        self._context = context
        self._watchers: set[Watcher] = set()

    def __repr__(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def id(self) -> ReplicaId:
        return self.topic_id, self.number

    # --- log, role and watchers ----------------------------------------------------------------------------------------------

    def leader_role(self) -> LeaderRole:
        """The role, if this replica leads. ReplicaError KAFKA_STORAGE_ERROR or NOT_LEADER_OR_FOLLOWER."""
        self.online_log()
        if not isinstance(self.role, LeaderRole):
            leader = f"broker {self.state.leader} does" if self.state.leader >= 0 else "nobody does now"
            raise ReplicaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self}; {leader}")
        return self.role

    def reader_role(self) -> LeaderRole | FollowerRole:
        """The role, if this replica leads or follows. ReplicaError KAFKA_STORAGE_ERROR or NOT_LEADER_OR_FOLLOWER."""
        self.online_log()
        if self.role is None:
            raise ReplicaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker neither leads nor follows {self} now")
        return self.role

    def leader_log(self) -> PartitionLog:
        """The log, if this replica leads. Errors of `leader_role`."""
        self.leader_role()
        return self.online_log()

    def online_log(self) -> PartitionLog:
        """The current log. ReplicaError KAFKA_STORAGE_ERROR if its directory is offline; NOT_LEADER_OR_FOLLOWER while the log of
        a new replica is being created.
        """
        if self.log is None and self.is_being_placed:
            raise ReplicaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the log of {self} is being created on this broker; retry")
        if self.log is None:
            raise ReplicaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_reason)
        return self.log

    def ending_log(self) -> AbstractContextManager[None]:
        """Background work on the log, if there is one: an unexpected error inside the block ends this log (LogEnded)."""
        return nullcontext() if self.log is None else self._context.disks.ending(self.log, ReplicaError)

    @contextmanager
    def watched_by(self, event: Watcher) -> Iterator[None]:
        """Set `event` at the next change of log, high watermark or role."""
        self.watch(event)
        try:
            yield
        finally:
            self.unwatch(event)

    def watch(self, event: Watcher) -> None:
        """As `watched_by`, for a caller with thousands of partitions; `unwatch` has to follow."""
        self._watchers.add(event)

    def unwatch(self, event: Watcher) -> None:
        self._watchers.discard(event)

    def notify(self) -> None:
        watchers, self._watchers = self._watchers, set()
        for event in watchers:
            event.set()

    # --- roles, from the metadata --------------------------------------------------------------------------------------------

    async def lead(self, state: PartitionImage) -> bool:
        """Become leader, or stay it, with that state; True if a new leader epoch began here. The log must be there."""
        async with self.lock:
            log = self.online_log()
            if self._is_new_epoch(state):
                await self._context.disks.run(log.log_dir, log.start_epoch, state.leader_epoch)
            return self._lead(state, log)

    def lead_now(self, state: PartitionImage) -> bool | None:
        """As `lead` if that need not wait; otherwise return None and do nothing."""
        log = self.online_log()
        if self.lock.locked() or (self._is_new_epoch(state) and not log.try_start_epoch(state.leader_epoch)):
            return None
        return self._lead(state, log)

    def _is_new_epoch(self, state: PartitionImage) -> bool:
        return not isinstance(self.role, LeaderRole) or self.role.epoch != state.leader_epoch

    def _lead(self, state: PartitionImage, log: PartitionLog) -> bool:
        """Take the role; the epoch has begun in the log, and the lock is free or held."""
        began = self._is_new_epoch(state)
        self._adopt(state)
        if began:
            self.role = LeaderRole(state.leader_epoch, log.log_end_offset)
            if state.leader_recovery_state == RECOVERING:
                self.losses.elected_uncleanly(self, log.log_end_offset)
            now_s = trio.current_time()
            # Members of the ISR count as caught up at the beginning of this epoch.
            self.role.progress = {
                member: FollowerProgress(last_caught_up_s=now_s) for member in state.isr if member != self._context.broker_id
            }
        self._raise_high_watermark()
        self.notify()
        return began

    async def follow(self, state: PartitionImage) -> bool:
        """Become follower, or stay it, with that state; True if the leader or its epoch is new."""
        async with self.lock:
            return self._follow(state)

    def follow_now(self, state: PartitionImage) -> bool | None:
        """As `follow` if that need not wait; otherwise return None and do nothing."""
        return None if self.lock.locked() else self._follow(state)

    def _follow(self, state: PartitionImage) -> bool:
        self._adopt(state)
        changed = (
            not isinstance(self.role, FollowerRole)
            or self.role.epoch != state.leader_epoch
            or self.role.leader_id != state.leader
        )
        if changed:
            filling = self.role.filling if isinstance(self.role, FollowerRole) else None
            self.role = FollowerRole(state.leader_epoch, state.leader)
            self.role.filling = filling
        self._note_filling()
        self.notify()
        return changed

    async def retire(self, reason: str | None = None) -> None:
        """Drop role and log: the replica leaves this broker, its directory failed, or its log has ended for a `reason`. Waiting
        tasks are woken.
        """
        async with self.move_lock, self.lock:
            self.offline_reason = reason or self.offline_reason
            self._drop_pending_isr()
            self.role = None
            self.log = None
            self.future = None
            self.notify()

    def _adopt(self, state: PartitionImage) -> None:
        """Take newer state. An answer of the controller may have brought newer state already, which must not be replaced."""
        if state.partition_epoch < self.state.partition_epoch and state.leader_epoch <= self.state.leader_epoch:
            return
        if state.partition_epoch > self.state.partition_epoch:
            self._drop_pending_isr()
        self._set_state(state)

    def _set_state(self, state: PartitionImage) -> None:
        if isinstance(self.role, LeaderRole):
            dropped = set(self.state.isr) - set(state.isr)
            for member in dropped:
                # It was caught up, but may never fetch again: the high watermark waits for it only after its next fetch.
                self.role.progress.pop(member, None)
            self._context.traffic.isr_shrinks += not dropped.isdisjoint(state.replicas)
            self._context.traffic.isr_expands += not set(state.isr) <= set(self.state.isr)
        self.state = state

    def _drop_pending_isr(self) -> None:
        if isinstance(self.role, LeaderRole) and self.role.pending_isr is not None:
            self.role.pending_isr = None
            self._context.withdraw_isr(self)

    # --- leading -------------------------------------------------------------------------------------------------------------

    async def append_as_leader(
        self,
        batches: bytes | memoryview,
        *,
        keep_offsets: bool = False,
        may_be_stored: bool = True,
        role: LeaderRole | None = None,
    ) -> tuple[AppendInfo, int]:
        """Append whole batches: (their place, leader epoch). ReplicaError, or LogError of the storage.

        `role`: append under this role only. If it is over, the error is NOT_LEADER_OR_FOLLOWER, also if a newer one began here.
        """
        async with self.lock:
            if role is not None and role is not self.role:
                raise ReplicaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"epoch {role.epoch} of {self} is over")
            role = self.leader_role()
            log = self.online_log()
            self._note_caught_up(role, log.log_end_offset)
            append = partial(log.append_as_leader, keep_offsets=keep_offsets, may_be_stored=may_be_stored)
            appended = await self._context.disks.run(log.log_dir, append, batches, role.epoch)
            self._context.traffic.appended(self.traffic, appended.records, appended.size_bytes)
            self._raise_high_watermark()
            self.notify()
            return appended, role.epoch

    def _note_caught_up(self, role: LeaderRole, end_offset: int) -> None:
        """Note followers at the log's end as caught up at their last fetch."""
        for member, progress in role.progress.items():
            last_fetch_s = self._context.last_fetch_s(member)
            if progress.log_end_offset == end_offset and last_fetch_s > progress.last_caught_up_s:
                role.progress[member] = msgspec.structs.replace(progress, last_caught_up_s=last_fetch_s)

    def follower_fetched(self, follower_id: int, fetch_offset: int, log_start_offset: int, broker_epoch: int) -> None:
        """Note that a follower holds all records below `fetch_offset`; propose it for the ISR if it may join."""
        role = self.leader_role()
        log = self.online_log()
        before = role.progress.get(follower_id, FollowerProgress())
        role.progress[follower_id] = after = before.after_fetch(
            fetch_offset, log_start_offset, broker_epoch, log.log_end_offset, trio.current_time()
        )
        if follower_id not in self.state.isr and role.pending_isr is None and self._may_join(role, log, follower_id, after):
            self._propose(role, (*self.state.isr, follower_id))
        if after.log_end_offset != before.log_end_offset:
            self._raise_high_watermark()
        if after.log_start_offset != before.log_start_offset:
            self.notify()

    async def delete_records_before(self, offset: int) -> int:
        """Advance the log start to `offset` (-1: the high watermark), unless it is later already; delete segments below.

        Return the resolved offset. ReplicaError OFFSET_OUT_OF_RANGE beyond the high watermark; LogError of the storage.
        """
        async with self.move_lock, self.lock:
            self.leader_role()
            log = self.online_log()
            wanted = log.high_watermark if offset == UP_TO_HIGH_WATERMARK else offset
            if not 0 <= wanted <= log.high_watermark:
                raise ReplicaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"offset {offset} is not within 0 and the high watermark {log.high_watermark} of {self}",
                )
            await self._context.disks.run(log.log_dir, log.advance_log_start, wanted)
            await self._advance_future_start(log)
            self.notify()
            return wanted

    def low_watermark(self) -> int:
        """The lowest log start offset of a live replica, as far as the leader knows; -1 if one is unknown."""
        role = self.leader_role()
        nothing = FollowerProgress()
        others = (member for member in self.state.replicas if member != self._context.broker_id)
        starts = [role.progress.get(member, nothing).log_start_offset for member in others if self._context.is_active(member)]
        return min((self.online_log().log_start_offset, *starts))

    async def delete_old_segments(self) -> int:
        """Apply retention; return the number of deleted segments. ReplicaError without a log, LogError.

        What takes long is done before, beside appends.
        """
        log = self.online_log()
        if not await self._context.disks.run(log.log_dir, has_expired, log):
            return 0
        async with self.move_lock, self.lock:
            log = self.online_log()
            count: int = await self._context.disks.run(log.log_dir, log.delete_old_segments)
            if count:
                await self._advance_future_start(log)
                self.notify()
            return count

    async def _advance_future_start(self, log: PartitionLog) -> None:
        """Remove the records from the future log that the current one has lost at its start. `move_lock` is held.

        If that fails, the next chunk of the move does it, and shows the error. A follower whose leader advances the start leaves
        it to the next chunk, too.
        """
        future, start = self.future, log.log_start_offset
        if future is None or future.log_start_offset >= start:
            return
        advance = future.advance_log_start if start <= future.log_end_offset else future.truncate_fully_and_start_at
        try:
            await self._context.disks.run(future.log_dir, advance, start)
        except LogError as error:
            logger.warning("%s: old records of its copy in %s stay for now: %s", self, future.log_dir, error)

    def brokers_changed(self) -> None:
        """Reconsider the high watermark and waiting requests, since brokers became active or inactive."""
        if isinstance(self.role, LeaderRole) and self.log is not None:
            self._raise_high_watermark()
            self.notify()

    def check_lag(self) -> None:
        """Propose to drop lagging members, and stop waiting for other lagging followers."""
        self._raise_high_watermark()
        if not isinstance(self.role, LeaderRole) or self.log is None or self.role.pending_isr is not None:
            return
        lagging = lagging_members(
            self.state.isr,
            self._context.broker_id,
            self.role.progress,
            self.log.log_end_offset,
            trio.current_time(),
            self._context.lag_time_max_s,
        )
        if lagging:
            logger.info("%s: %s fell behind the leader's end %d", self, lagging, self.log.log_end_offset)
            self._propose(self.role, tuple(member for member in self.state.isr if member not in lagging))

    def isr_answered(self, result: IsrChangeResult) -> bool:
        """Handle the controller's answer; True if the proposal is settled or waits for the metadata, False to send it again."""
        role = self.role
        self._context.traffic.failed_isr_updates += result.error != ErrorCode.NONE
        if not isinstance(role, LeaderRole) or role.pending_isr is None:
            return True
        match reaction_to(result.error):
            case Reaction.ADOPT:
                if result.leader_epoch == role.epoch and not self._is_shrunk_ahead(result):
                    if result.partition_epoch >= self.state.partition_epoch:
                        self._set_state(
                            msgspec.structs.replace(
                                self.state,
                                isr=result.isr,
                                partition_epoch=result.partition_epoch,
                                leader_recovery_state=result.leader_recovery_state,
                            )
                        )
                    role.pending_isr = None
                # Otherwise wait for the metadata: a reassignment was completed and a leader epoch began, or the set is smaller.
            case Reaction.RESET:
                role.pending_isr = None
            case Reaction.WAIT:
                logger.info("%s: the controller answered with error %d to ISR %s", self, result.error, role.pending_isr)
            case Reaction.RETRY:
                return False
        self._raise_high_watermark()
        return True

    def _is_shrunk_ahead(self, result: IsrChangeResult) -> bool:
        """Return True if the answer drops members and the metadata does not have it yet.

        With a smaller set, the minimum at that place of the log matters: a member that is dropped below the minimum must not miss
        any record that is committed from then on.
        """
        return result.partition_epoch > self.state.partition_epoch and not set(self.state.isr) <= set(result.isr)

    def is_below_min_isr(self) -> bool:
        """Return True if the committed ISR is smaller than min.insync.replicas, and than the replica set."""
        return len(self.state.isr) < self._min_isr()

    def _min_isr(self) -> int:
        return partition_min_isr(self.state, self._context.min_insync_replicas(self.topic))

    def _may_join(self, role: LeaderRole, log: PartitionLog, follower_id: int, progress: FollowerProgress) -> bool:
        return follower_id in self.state.replicas and may_join(
            progress,
            log.high_watermark,
            role.epoch_start_offset,
            self._context.registered_epoch(follower_id),
            self._context.is_eligible(self.state, follower_id),
        )

    def _propose(self, role: LeaderRole, isr: tuple[int, ...]) -> None:
        role.pending_isr = isr
        members = []
        for member in isr:
            progress = role.progress.get(member)
            known = progress.broker_epoch if progress is not None and progress.broker_epoch >= 0 else None
            epoch = known if known is not None and member not in self.state.isr else self._context.registered_epoch(member)
            members.append((member, -1 if epoch is None else epoch))
        change = IsrChange(self.topic_id, self.number, role.epoch, tuple(members), RECOVERED, self.state.partition_epoch)
        self._context.propose_isr(self, change)

    def _raise_high_watermark(self) -> None:
        role, log = self.role, self.log
        if not isinstance(role, LeaderRole) or log is None:
            return
        now_s = trio.current_time()
        counting = set(maximal_isr(self.state.isr, role.pending_isr))
        for follower_id, progress in role.progress.items():
            level = progress.is_caught_up(log.log_end_offset, now_s, self._context.lag_time_max_s)
            if level and self._may_join(role, log, follower_id, progress):
                counting.add(follower_id)
        counting.discard(self._context.broker_id)
        nothing = FollowerProgress()
        raised = advance_high_watermark(
            log.high_watermark,
            log.log_start_offset,
            log.log_end_offset,
            [role.progress.get(follower_id, nothing).log_end_offset for follower_id in counting],
            len(self.state.isr),
            self._min_isr(),
        )
        if raised != log.high_watermark:
            log.high_watermark = raised
            self.notify()

    # --- following -----------------------------------------------------------------------------------------------------------

    def _note_filling(self) -> None:
        """Keep the progress of an out-of-sync replica; drop it once the replica is in sync."""
        if not isinstance(self.role, FollowerRole):
            return
        if self._context.broker_id in self.state.isr or self.role.leader_id < 0:
            self.role.filling = None
        elif self.role.filling is None:
            self.role.filling = Filling()

    async def append_fetched(self, leader_epoch: int, fetched: FetchedPartition) -> None:
        """Append a fetched answer of the leader of `leader_epoch`, unless the role has changed. LogError."""
        async with self.lock:
            role, log = self.role, self.log
            if not isinstance(role, FollowerRole) or log is None or role.epoch != leader_epoch:
                return
            if fetched.records:
                await self._context.disks.run(log.log_dir, log.append_as_follower, fetched.records, leader_epoch)
                is_added = self._context.broker_id in self.state.adding
                self._context.traffic.replicated_here(len(fetched.records), is_added)
            role.leader_high_watermark = fetched.high_watermark
            log.high_watermark = max(log.high_watermark, min(fetched.high_watermark, log.log_end_offset))
            if log.log_start_offset < fetched.log_start_offset <= log.log_end_offset:
                await self._context.disks.run(log.log_dir, log.advance_log_start, fetched.log_start_offset)
            if role.filling is not None and (fetched.records or fetched.bytes_left >= 0):
                role.filling.record(len(fetched.records), fetched.bytes_left)
            self.notify()

    async def truncate(self, leader_epoch: int, offset: int) -> None:
        """Truncate the log (and a future log) to `offset`, if this replica still follows `leader_epoch`."""
        async with self.move_lock, self.lock:
            log = self._following_log(leader_epoch)
            if log is None:
                return
            before = log.log_end_offset, log.high_watermark, log.size_bytes
            # Even without records to remove: an epoch that this replica began as leader, without a record, is removed.
            await self._context.disks.run(log.log_dir, log.truncate_to, offset)
            self._note_loss(log, *before)
            if self.future is not None and self.future.log_end_offset > offset:
                await self._context.disks.run(self.future.log_dir, self.future.truncate_to, offset)
            self.notify()

    async def start_over_at(self, leader_epoch: int, offset: int) -> None:
        """Drop everything and begin at the leader's log start, which has passed this log's end."""
        async with self.move_lock, self.lock:
            log = self._following_log(leader_epoch)
            if log is None:
                return
            logger.warning(
                "%s: the leader's log begins at %d, this log ended at %d; starting over", self, offset, log.log_end_offset
            )
            await self._context.disks.run(log.log_dir, log.truncate_fully_and_start_at, offset)
            if self.future is not None:
                await self._context.disks.run(self.future.log_dir, self.future.truncate_fully_and_start_at, offset)
            self.notify()

    def _note_loss(self, log: PartitionLog, end: int, high_watermark: int, size_bytes: int) -> None:
        """Note the records that a truncation has removed; the arguments are those of the log before."""
        if log.log_end_offset < end:
            self.losses.truncated(self, log.log_end_offset, end, high_watermark, size_bytes - log.size_bytes)

    def _following_log(self, leader_epoch: int) -> PartitionLog | None:
        return self.log if isinstance(self.role, FollowerRole) and self.role.epoch == leader_epoch else None

    # --- directories ---------------------------------------------------------------------------------------------------------

    @property
    def log_dir(self) -> Path | None:
        return self.log.log_dir if self.log is not None else None
