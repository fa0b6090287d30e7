"""The Raft state machine of the metadata quorum and the batch format of its log, without I/O.

A shell drives one `RaftNode`, holds messages back in an `Outbox` until they are durable, and gives the node a `LogView` of the
log. Events, effects, messages and batches live in modules of those names.
"""

from .effects import Barrier, ElectionState
from .errors import CorruptBatch, ErrorCode, InvariantViolation, LogTruncationRefused
from .log_view import LogView
from .outbox import Outbox
from .quorum_state import TRANSITIONS, Transition
from .raft_config import BootState, RaftConfig
from .raft_node import RaftNode, RaftStatistics, ReplicaStatus
from .snapshots import SnapshotContext
from .types import ZERO_UUID, Endpoint, OffsetAndEpoch, ReplicaKey, Voter, VoterSet

__all__ = [
    "TRANSITIONS",
    "ZERO_UUID",
    "Barrier",
    "BootState",
    "CorruptBatch",
    "ElectionState",
    "Endpoint",
    "ErrorCode",
    "InvariantViolation",
    "LogTruncationRefused",
    "LogView",
    "OffsetAndEpoch",
    "Outbox",
    "RaftConfig",
    "RaftNode",
    "RaftStatistics",
    "ReplicaKey",
    "ReplicaStatus",
    "SnapshotContext",
    "Transition",
    "Voter",
    "VoterSet",
]
