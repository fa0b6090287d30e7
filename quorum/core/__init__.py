"""Consensus as pure code: the Raft state machine of the metadata quorum and the batch format of its log.

`RaftNode` is the whole of it for a shell; `Outbox` holds its messages back until they are durable; `LogView` is how it sees
the log. Events, effects, messages and batches live in modules of those names.
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
