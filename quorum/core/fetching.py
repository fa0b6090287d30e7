"""The follower's half of replication: pulls the log, one fetch at a time, and repairs its own tail (KIP-595).

A fetch from offset o claims "I hold everything below o durably", so it waits for all earlier storage operations, truncations
included. At most one fetch is in flight per state object. A response counts only if the current state waits for it and it comes
from the leader of the current epoch, so nothing is appended twice. A node without a known leader sends the same request to any
voter: the answer names the leader, and if it came from the leader itself its records count.

*A leader that does not answer at its known address* may have moved: the node was away, while the leader and all the voters that
it knows moved or were replaced. So a follower that has not fetched from its leader yet, or knows that the leader is gone, and
whose fetch fails, sends the next one to ANYBODY (any configured endpoint), and alternates between the two. A node without a known
leader alternates between the voters and ANYBODY as well. An answer can name the next leader, or the old one's new endpoints. A
leader that has answered before is still at its address: after a lost answer the fetch is sent there again, and to nobody else.

A fetch is given up before the fetch timer ends, so that one lost answer costs a retry and not a round of pre-votes. Later answers
are dropped.

A log that ends before the leader's begins is replaced by a snapshot. While one is being copied, FetchSnapshot takes the place of
Fetch (snapshot_fetching.py). Where a voter would stand for election, a follower that may not stand (an observer, or a node that
repairs its log) looks for another leader.

On an answer without error: diverging → truncate to where the logs may still agree, and fetch again; records → check every batch
against the own end (crc, chain, offset, epoch), append, then raise the high watermark to `min(own end, leader's)`. Divergence is
handled before the high watermark moves (KAFKA-14704). A divergence below the known high watermark, or below the own log's start,
which is the same, means that the leader lacks committed records, and ends this node. Everything else that does not fit is dropped
with a trace and fetched again after a pause.
"""

from __future__ import annotations

from kraftlab.common.errors import ErrorCode

from .batch import BatchHeader, check_all
from .effects import ANYBODY, Barrier
from .errors import CorruptBatch, LogTruncationRefused
from .local_log import LocalLog
from .messages import Diverging, FetchRequest, FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse, Records
from .quorum_state import QuorumState
from .requests import InFlight, RequestManager
from .snapshot_fetching import SnapshotFetching
from .states import Follower, Unattached
from .types import NO_LEADER


class Fetching:
    """A node's part while it follows, or looks for a leader."""

    __slots__ = ("_answer_ms", "_log", "_max_wait_ms", "_quorum", "_requests", "_snapshots")

    def __init__(self, quorum: QuorumState, log: LocalLog, requests: RequestManager, snapshots: SnapshotFetching) -> None:
        self._max_wait_ms, self._answer_ms = quorum.config.fetch_max_wait_ms, quorum.config.fetch_answer_ms
        self._quorum = quorum
        self._log = log
        self._requests = requests
        self._snapshots = snapshots

    # Requests

    def poll_follower(self, state: Follower, now_ms: int) -> None:
        if now_ms >= state.fetch_deadline_ms:
            if self._quorum.may_stand:
                self._quorum.stand(now_ms, "fetch timeout")
            else:
                self._quorum.lose_leader(now_ms, "fetch timeout")
        elif state.fetch_correlation is None and now_ms >= state.fetch_at_ms:
            if state.is_leader_missed:
                self._fetch(state, ANYBODY, 0)
            elif state.download is not None:
                self._snapshots.ask(state, state.download)
            else:
                self._fetch(state, state.leader_id, self._max_wait_ms)

    def poll_unattached(self, state: Unattached, now_ms: int) -> None:
        if state.fetch_correlation is None and now_ms >= state.fetch_at_ms:
            self._fetch(state, self._quorum.pick_voter(), 0)

    def _fetch(self, state: Follower | Unattached, destination: int, max_wait_ms: int) -> None:
        quorum, view = self._quorum, self._log.view
        request = FetchRequest(
            epoch=state.epoch,
            replica=quorum.membership.own_key,
            fetch_offset=view.end_offset,
            last_fetched_epoch=view.last_epoch,
            high_watermark=self._log.high_watermark,
            max_wait_ms=max_wait_ms,
            max_bytes=quorum.config.fetch_max_bytes,
            read_round=state.read_round if isinstance(state, Follower) else 0,
            is_repairing=quorum.repair.is_on,
        )
        after = Barrier(quorum.election_version, self._log.flushes.last_id)
        state.fetch_correlation = self._requests.send(destination, request, after, max_wait_ms + self._answer_ms)

    # Answers

    def is_awaited(self, correlation: int) -> bool:
        """Return True if the current state waits for that answer, and stop waiting for it."""
        state = self._quorum.state
        if not isinstance(state, (Follower, Unattached)) or state.fetch_correlation != correlation:
            return False
        state.fetch_correlation = None
        state.fetch_at_ms = 0
        return True

    def on_response(self, asked: InFlight, source: int, response: FetchResponse | FetchSnapshotResponse, now_ms: int) -> None:
        """Handle an awaited answer, whose claims about the leadership were handled before."""
        state = self._quorum.state
        later_ms = now_ms + self._quorum.config.retry_backoff_ms
        if isinstance(state, Unattached):
            state.fetch_at_ms = later_ms
        if not isinstance(state, Follower) or asked.request.epoch != state.epoch:
            return
        was_missed, state.is_leader_missed = state.is_leader_missed, False
        if source != state.leader_id:
            if was_missed:
                state.fetch_at_ms = later_ms
            return
        if isinstance(response, FetchSnapshotResponse):
            if isinstance(asked.request, FetchSnapshotRequest):
                self._snapshots.on_response(state, asked.request, response, now_ms)
        elif response.error is ErrorCode.NONE:
            state.fetched(now_ms)
            if response.read_round > state.read_round:
                state.read_round = response.read_round
            if state.download is None and not self._take(state, response, now_ms):
                state.fetch_at_ms = later_ms
            state.is_caught_up = 0 <= response.high_watermark <= self._log.view.end_offset
        else:
            state.fetch_at_ms = later_ms
        if response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and response.leader.leader_id == NO_LEADER:
            self._quorum.note_resigned(response.leader.epoch)
            self._leader_resigned(state, now_ms)

    def _leader_resigned(self, state: Follower, now_ms: int) -> None:
        """Handle the leader's own claim that it has resigned. Voters leave the first move to EndQuorumEpoch's order."""
        if self._quorum.may_stand:
            state.leader_gone(now_ms + self._quorum.config.election_backoff_max_ms)
        else:
            self._quorum.lose_leader(now_ms, "the leader has resigned")

    def _take(self, state: Follower, response: FetchResponse, now_ms: int) -> bool:
        """Handle the outcome of a fetch. Return False if it was useless: fetch again after a pause."""
        outcome = response.outcome
        if isinstance(outcome, Records):
            if outcome.data and not self._append(outcome.data):
                return False
            self._log.commit(min(self._log.view.end_offset, response.high_watermark))
            return True
        if isinstance(outcome, Diverging):
            return self._truncate(outcome)
        return self._snapshots.begin(state, outcome.id, now_ms)

    def _truncate(self, diverging: Diverging) -> bool:
        view = self._log.view
        end_offset, epoch = view.end_offset_for_epoch(diverging.epoch)
        to_offset = min(end_offset, diverging.end_offset) if epoch == diverging.epoch else end_offset
        if 0 <= diverging.epoch < view.start.epoch or 0 <= to_offset < view.start_offset:
            raise LogTruncationRefused(self._refusal(max(0, min(diverging.end_offset, view.start_offset))))
        if to_offset >= view.end_offset or not view.is_boundary(to_offset):
            self._quorum.trace("peer", f"{diverging!r} makes no sense for {view!r}")
            return False
        if to_offset < self._log.high_watermark:
            raise LogTruncationRefused(self._refusal(to_offset))
        self._quorum.trace("truncate", f"{view!r} to {to_offset}: {diverging!r}")
        self._log.truncate(to_offset)
        return True

    def _refusal(self, to_offset: int) -> str:
        quorum = self._quorum
        return (
            f"this node holds committed records that the leader lacks: node {quorum.config.node_id} knows everything below "
            f"offset {self._log.high_watermark} as committed, but its log and that of node {quorum.leader_id}, the leader of "
            f"epoch {quorum.epoch}, agree only below offset {to_offset}. Most voters lost their metadata logs or run on older "
            "copies. Nothing was removed here. Keep this node stopped and copy its metadata log directory, stop the nodes that "
            "lost their logs, and restore the quorum from this copy"
        )

    def _append(self, data: bytes) -> bool:
        try:
            headers = check_all(data)
            self._check(headers)
            self._log.append(headers, data)
        except CorruptBatch as error:
            self._quorum.trace("corrupt", f"dropped {len(data)} bytes from the leader: {error}")
            return False
        return True

    def _check(self, headers: list[BatchHeader]) -> None:
        """Raise CorruptBatch unless the batches continue the own log and fit the leader's epoch."""
        view = self._log.view
        offset, epoch, crc = view.end_offset, view.last_epoch, view.last_crc
        for header in headers:
            if header.base_offset != offset or header.previous_crc != crc:
                raise CorruptBatch(f"{header!r} does not continue a log that ends at {offset} with crc {crc:08x}")
            if not epoch <= header.epoch <= self._quorum.epoch:
                raise CorruptBatch(f"{header!r} has an epoch outside {epoch}..{self._quorum.epoch}")
            if header.high_watermark > header.base_offset:
                raise CorruptBatch(f"{header!r} claims a high watermark of {header.high_watermark}, beyond itself")
            offset, epoch, crc = offset + header.record_count, header.epoch, header.crc

    def on_failed(self, asked: InFlight, refused: bool, now_ms: int) -> None:
        """Handle an awaited fetch that got no answer."""
        state = self._quorum.state
        config = self._quorum.config
        if isinstance(state, Unattached):
            state.fetch_at_ms = now_ms + config.retry_backoff_ms
        elif isinstance(state, Follower) and asked.destination != state.leader_id:
            state.is_leader_missed = False
            state.fetch_at_ms = now_ms + config.retry_backoff_ms
        elif isinstance(state, Follower):
            if refused and not self._quorum.may_stand:
                self._quorum.lose_leader(now_ms, "the leader's process is gone")
                return
            if refused:
                state.leader_gone(now_ms + self._quorum.random_below_ms(config.refused_backoff_max_ms + 1))
            self._leader_missed(state, now_ms)

    def _leader_missed(self, state: Follower, now_ms: int) -> None:
        """Send the next fetch to ANYBODY at once, or to the leader again after a pause: the last one did not reach the leader."""
        state.is_leader_missed = self._quorum.asks_anybody and not state.has_fetched
        state.fetch_at_ms = now_ms if state.is_leader_missed else now_ms + self._quorum.config.retry_backoff_ms
