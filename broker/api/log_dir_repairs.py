"""Log directories after a failure: OnlineLogDir brings one back, ResolveReplicaCopy decides on a copy that was kept."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.records.errors import LogError

from ..log.errors import ReplicaConflict
from ..log.startup import Action
from ..replica_manager import ReplicaManager
from ..replication.replica_errors import code_of
from ..upkeep.directory_returns import DirectoryReturns


class LogDirRepairs:
    """Handlers of the two calls. Their errors travel in the header."""

    def __init__(self, replicas: ReplicaManager, returns: DirectoryReturns) -> None:
        self._replicas = replicas
        self._returns = returns

    async def bring_online(self, message: Message) -> Message:
        """Bring a directory back. 57: not one of log.dirs; 56: it stays offline, and the text says why."""
        assert isinstance(message, admin_pb2.OnlineLogDirRequest)
        path = Path(message.log_dir)
        known = self._replicas.logs.log_dirs
        if message.log_dir not in map(str, known):
            raise ApiError(
                ErrorCode.LOG_DIR_NOT_FOUND,
                f"{message.log_dir!r} is not a log directory of broker {self._replicas.broker_id}; it has "
                f"{', '.join(map(str, known))}",
            )
        try:
            plan = await self._returns.bring_online(path)
        except LogError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return admin_pb2.OnlineLogDirResponse(replicas=[_returned(action) for action in plan])

    async def resolve(self, message: Message) -> Message:
        """Promote or drop a kept copy. 42: there is no such copy, or the replica has a log; 56: its disk failed."""
        assert isinstance(message, admin_pb2.ResolveReplicaCopyRequest)
        path = Path(message.path)
        try:
            if message.promote:
                await self._replicas.promote_copy(path)
            else:
                await self._replicas.drop_copy(path)
        except LogError as error:
            code = ErrorCode.INVALID_REQUEST if isinstance(error, ReplicaConflict) else code_of(error)
            raise ApiError(code, str(error)) from error
        return admin_pb2.ResolveReplicaCopyResponse()


def _returned(action: Action) -> admin_pb2.ReturnedReplica:
    return admin_pb2.ReturnedReplica(
        topic_name=action.topic,
        partition_index=action.partition,
        outcome=action.verb.value,
        directory="" if action.subject is None else action.subject.name,
        reason=action.reason,
    )
