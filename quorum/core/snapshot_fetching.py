"""The follower's half of a snapshot transfer: copies the leader's, checks it, and replaces its own log by it (KIP-630).

Theory of operation. A leader whose log begins after the end of the follower's answers a Fetch with the id of a snapshot. From
then on the follower's state holds a `Download`, and FetchSnapshot takes the place of Fetch: one request in flight, the same
timers, the same fencing by epoch. The copy grows on the disk beside the log and touches nothing::

    SnapshotRequired -> OpenSnapshot -> [FetchSnapshot -> StoreSnapshotChunk]* -> VerifySnapshot -> InstallSnapshot -> Fetch

Only a whole copy with a valid chain of crcs and a valid digest is installed, by one operation of the storage stream. Before it
the disk has the old log, after it the snapshot and an empty log that starts at its end; a crash leaves one or the other. In
memory it happens at once: the log's view starts over, the voters are those of the snapshot, and the high watermark rises to its
end, since a snapshot holds committed data only (KAFKA-9491). The next Fetch waits for its durability, as after any write.

*Nothing is lost* that anybody relies on: a leader's log holds everything committed. The part of this node's own log beyond the
snapshot's end, or beside it, was never committed. A snapshot that ends at or below the own high watermark, or that is a position
of the own log already, is useless and is not copied.

*One at a time.* The disk works for one download at a time and answers every request exactly once, in order. A download dies with
its state (another leader, a fetch timeout). Its last request is still answered, and the answer serves a later download of the
same snapshot. Another download waits until the disk is free.

*An unfinished copy* from an earlier attempt is continued if it came from the same leader or from before a restart. The same
snapshot from another node need not have the same bytes, so a new leader's is copied from its beginning. After a restart, size or
digest detect a copy of another leader's, and the copy begins again.

*A slow disk.* While the disk writes or verifies, the follower sends FetchSnapshot for no bytes, several times per fetch timeout.
So the leader keeps counting it as alive, and the follower notices if the leader dies. A voter neither stands for election because
its own disk is slow, nor waits forever for a leader that has gone while its disk is busy.

*Failures.* If the snapshot is gone at the leader, a position is out of range, the check fails or the size changes, the download
is dropped, and a Fetch after a pause finds out what is needed now. The pause is longer if it was the same snapshot before: a
leader whose only one is damaged needs time to write another. An answer that does not fit is dropped and requested again. It does
not count as a sign of life, because a leader that sends nothing useful for a whole fetch timeout should be replaced.
"""

from __future__ import annotations

from kraftlab.common.errors import ErrorCode, InvariantViolation

from .effects import OpenSnapshot, StoreSnapshotChunk, VerifySnapshot
from .events import SnapshotChunkStored, SnapshotRefused, SnapshotVerified
from .local_log import LocalLog
from .messages import FetchSnapshotRequest, FetchSnapshotResponse
from .quorum_state import QuorumState
from .requests import RequestManager
from .snapshots import Snapshots
from .states import Download, DownloadStep, Follower
from .types import NO_LEADER, OffsetAndEpoch

_UNUSABLE = (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE, ErrorCode.INVALID_REQUEST)


class SnapshotFetching:
    """A follower's part if its leader's log begins too late for it."""

    __slots__ = ("_copied_from", "_disk_download", "_given_up", "_log", "_quorum", "_requests", "_snapshots")

    def __init__(self, quorum: QuorumState, log: LocalLog, requests: RequestManager, snapshots: Snapshots) -> None:
        self._quorum = quorum
        self._log = log
        self._requests = requests
        self._snapshots = snapshots
        self._disk_download: Download | None = None
        self._copied_from: tuple[OffsetAndEpoch, int] | None = None
        """Snapshot and leader of the unfinished copy; None: a copy from before this process."""
        self._given_up: OffsetAndEpoch | None = None
        """The last download that failed, until one succeeds."""

    # Requests to the leader

    def begin(self, state: Follower, snapshot: OffsetAndEpoch, now_ms: int) -> bool:
        """Begin the download of the snapshot that the leader names. Return False if it is useless."""
        if not self._wants(snapshot):
            self._quorum.trace("snapshot", f"{snapshot} is of no use for {self._log!r}")
            return False
        self._quorum.trace("snapshot", f"{snapshot} of node {state.leader_id} is to replace {self._log.view!r}")
        state.download = Download(snapshot)
        state.fetch_at_ms = self._next_ask_ms(now_ms)
        self._open(state.download)
        return True

    def _wants(self, snapshot: OffsetAndEpoch) -> bool:
        is_ahead = snapshot.offset > max(0, self._log.high_watermark)
        return is_ahead and 0 < snapshot.epoch <= self._quorum.epoch and not self._log.view.holds(snapshot)

    def ask(self, state: Follower, download: Download) -> None:
        """Request the next part; only a sign of life while the disk is busy."""
        config = self._quorum.config
        max_bytes = config.snapshot_chunk_bytes if download.is_fetching else 0
        own_key, is_repairing = self._quorum.membership.own_key, self._quorum.repair.is_on
        request = FetchSnapshotRequest(state.epoch, own_key, download.id, download.position, max_bytes, is_repairing)
        timeout_ms = config.fetch_max_wait_ms + config.fetch_answer_ms
        state.fetch_correlation = self._requests.send(state.leader_id, request, self._quorum.barrier, timeout_ms)

    # The leader's answers

    def on_response(self, state: Follower, request: FetchSnapshotRequest, response: FetchSnapshotResponse, now_ms: int) -> None:
        """Handle an awaited answer of the leader that `state` follows. Sets the time of the next request, unless that is now."""
        download, error = state.download, response.error
        if download is None or request.snapshot != download.id:
            return
        if not download.is_fetching:
            if error is ErrorCode.NONE or error in _UNUSABLE:
                state.fetched(now_ms)
            state.fetch_at_ms = self._next_ask_ms(now_ms)
        elif request.max_bytes == 0:
            if error is ErrorCode.NONE:
                state.fetched(now_ms)
        elif error is ErrorCode.NONE and self._take(state, download, request, response, now_ms):
            state.fetched(now_ms)
            state.fetch_at_ms = self._next_ask_ms(now_ms)
        elif error in _UNUSABLE:
            self._drop(state, download, f"the leader answers {error.name}", now_ms)
        elif state.download is download:
            state.fetch_at_ms = now_ms + self._quorum.config.retry_backoff_ms

    def _take(
        self,
        state: Follower,
        download: Download,
        request: FetchSnapshotRequest,
        response: FetchSnapshotResponse,
        now_ms: int,
    ) -> bool:
        """Send the bytes to the disk. Return False if there are none, or they do not fit."""
        size_bytes, end = response.size_bytes, response.position + len(response.data)
        is_asked_for = response.snapshot == download.id and response.position == request.position
        if not is_asked_for or size_bytes <= 0 or end > size_bytes or (not response.data and end < size_bytes):
            self._quorum.trace("peer", f"{response!r} does not answer {request!r}")
            return False
        if download.size_bytes not in (-1, size_bytes):
            self._drop(state, download, f"the leader's is of {size_bytes} bytes, and was of {download.size_bytes} before", now_ms)
            return False
        download.size_bytes = size_bytes
        if response.data:
            self._start_disk_work(download, DownloadStep.STORING)
            self._quorum.out.append(StoreSnapshotChunk(download.id, response.position, response.data))
        else:
            self._verify(download)
        return True

    def _drop(self, state: Follower, download: Download, reason: str, now_ms: int) -> None:
        """Start over with a Fetch, after a pause. The bytes that were copied so far are not trusted."""
        self._quorum.trace("snapshot", f"{download!r} is given up: {reason}")
        self._copied_from = (download.id, NO_LEADER)
        state.download = None
        is_again = self._given_up == download.id
        self._given_up = download.id
        state.fetch_at_ms = self._next_ask_ms(now_ms) if is_again else now_ms + self._quorum.config.retry_backoff_ms

    def _next_ask_ms(self, now_ms: int) -> int:
        return now_ms + self._quorum.config.fetch_max_wait_ms

    # Requests to the disk

    def _open(self, download: Download) -> None:
        if self._disk_download is None:
            self._start_disk_work(download, DownloadStep.OPENING)
            self._quorum.out.append(OpenSnapshot(download.id))

    def _verify(self, download: Download) -> None:
        self._start_disk_work(download, DownloadStep.VERIFYING)
        self._quorum.out.append(VerifySnapshot(download.id))

    def _start_disk_work(self, download: Download, step: DownloadStep) -> None:
        self._disk_download = download
        download.step = step

    # The disk's answers

    def on_chunk_stored(self, event: SnapshotChunkStored, now_ms: int) -> None:
        state, download = self._served_by(event.id)
        if state is None or download is None:
            return
        source = (download.id, state.leader_id)
        is_opened = download.step in (DownloadStep.WAITING, DownloadStep.OPENING)
        is_foreign = is_opened and self._copied_from not in (None, source)
        self._copied_from = source
        download.position = 0 if is_foreign else event.position
        if download.position == download.size_bytes:
            self._verify(download)
        else:
            download.step = DownloadStep.FETCHING
            state.fetch_at_ms = now_ms

    def on_verified(self, event: SnapshotVerified, now_ms: int) -> None:
        state, download = self._served_by(event.id)
        if state is None or download is None:
            return
        if not self._wants(event.id):
            raise InvariantViolation(f"{self._log!r} has moved on while {download!r} was verified")
        self._quorum.trace("snapshot", f"{event.id} replaces {self._log!r}")
        self._log.install(event.id, event.last_crc, event.control)
        self._snapshots.installed(event.id)
        self._given_up = None
        state.download = None
        state.fetch_at_ms = now_ms

    def on_refused(self, event: SnapshotRefused, now_ms: int) -> None:
        state, download = self._served_by(event.id)
        if state is not None and download is not None:
            self._drop(state, download, event.reason, now_ms)

    def _served_by(self, snapshot: OffsetAndEpoch) -> tuple[Follower | None, Download | None]:
        """Note that the disk has served a request for `snapshot`; return the download that wants it. A waiting one may begin."""
        asker, self._disk_download = self._disk_download, None
        if asker is None or asker.id != snapshot:
            raise InvariantViolation(f"storage answers for {snapshot}, but was asked for {asker!r}")
        state = self._quorum.state
        if not isinstance(state, Follower) or state.download is None:
            return None, None
        if state.download.id == snapshot:
            return state, state.download
        self._open(state.download)
        return None, None
