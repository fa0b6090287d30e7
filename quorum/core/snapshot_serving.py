"""The leader's half of a snapshot transfer: FetchSnapshot, piece by piece (KIP-630).

A request takes these steps: (1) the same fencing as a Fetch: malformed, older epoch, higher epoch, not the leader; (2) its sender
is alive and follows, which counts for check-quorum and in DescribeQuorum, but acknowledges nothing, because a copy is not part of
its log yet; (3) a snapshot that this node does not have is gone, or never was: SNAPSHOT_NOT_FOUND, and the follower starts over
with a Fetch; (4) the bytes are read and sent. A follower whose disk is busy with a piece requests no bytes, only to show that it
is alive; it is answered like any other. Nothing is remembered between requests, so a follower can request any position of any
snapshot, any number of times, and one that goes away leaves nothing. Step 3 also applies to a snapshot that is removed while it
is being copied, even if only the read notices.

If the read does not find a snapshot that should be there, the disk has lost it. If it is the newest, the one that followers are
sent to, the shell is requested to write it again, once (RewriteSnapshot). Until then followers are answered as in step 3. The
leader does not resign over it: the next leader's may be damaged as well, and the two would take turns forever. It resigns if its
disk has no room for another, which the shell reports as for any write (StorageFailed).
"""

from __future__ import annotations

from kraftlab.common.errors import ErrorCode

from .effects import ReadSnapshot, Reply, RewriteSnapshot
from .events import SnapshotRead
from .leader import Leader
from .leadership import Leadership
from .local_log import LocalLog
from .messages import FetchSnapshotRequest, FetchSnapshotResponse
from .quorum_state import QuorumState
from .snapshots import Snapshots
from .types import Standing


class SnapshotServing:
    """A leader's service to nodes that need a snapshot."""

    __slots__ = ("_leadership", "_log", "_quorum", "_snapshots")

    def __init__(self, quorum: QuorumState, log: LocalLog, leadership: Leadership, snapshots: Snapshots) -> None:
        self._quorum = quorum
        self._log = log
        self._leadership = leadership
        self._snapshots = snapshots

    def on_fetch_snapshot(self, correlation: int, request: FetchSnapshotRequest, standing: Standing, now_ms: int) -> None:
        """Answer now or after a read."""
        quorum = self._quorum
        error = self._leadership.error_of(request, standing, request.max_bytes >= 0, now_ms)
        leader = quorum.state
        if error is ErrorCode.NONE and isinstance(leader, Leader):
            progress = self._leadership.note_fetcher(leader, request, now_ms)
            if progress is not None:
                progress.asked_for_snapshot(self._log.view.end_offset, now_ms)
            error = self._position_error(request)
        if error is not ErrorCode.NONE or not isinstance(leader, Leader):
            self._refuse(correlation, request, error)
            return
        read_id = self._leadership.begin_read(leader, correlation, request)
        max_bytes = min(request.max_bytes, quorum.config.snapshot_chunk_bytes)
        quorum.out.append(ReadSnapshot(read_id, request.snapshot, request.position, max_bytes))

    def _position_error(self, request: FetchSnapshotRequest) -> ErrorCode:
        if request.snapshot not in self._snapshots.ids:
            return ErrorCode.SNAPSHOT_NOT_FOUND
        return ErrorCode.NONE if request.position >= 0 else ErrorCode.POSITION_OUT_OF_RANGE

    def on_snapshot_read(self, event: SnapshotRead, now_ms: int) -> None:
        """Answer the request that waits for the read.

        An unknown read was answered when its leadership ended, or was abandoned.
        """
        leader = self._quorum.state
        read = leader.reads.pop(event.read_id, None) if isinstance(leader, Leader) else None
        if read is None or not isinstance(read.request, FetchSnapshotRequest):
            return
        request = read.request
        if event.size_bytes < 0:
            self._refuse(read.correlation, request, ErrorCode.SNAPSHOT_NOT_FOUND)
            if self._snapshots.lost(request.snapshot):
                self._quorum.trace("snapshot", f"{request.snapshot} can no longer be read, and must be written again")
                self._quorum.out.append(RewriteSnapshot(request.snapshot))
        elif request.position > event.size_bytes:
            self._refuse(read.correlation, request, ErrorCode.POSITION_OUT_OF_RANGE)
        else:
            response = FetchSnapshotResponse(
                ErrorCode.NONE, self._quorum.view, request.snapshot, event.size_bytes, request.position, event.data
            )
            self._quorum.out.append(Reply(read.correlation, response, self._quorum.barrier))

    def _refuse(self, correlation: int, request: FetchSnapshotRequest, error: ErrorCode) -> None:
        self._quorum.out.append(Reply(correlation, self._quorum.refusal_of(request, error), self._quorum.barrier))
