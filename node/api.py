"""Prelude of the admin calls at any node: header, rights, loggers, and the form of a refusal.

Theory of operation. Controllers (`controller/api/service.py`) and brokers (`broker/api/admin_service.py`) answer a call in the
same order. `check` refuses a call for another cluster, in a read mode that it cannot have, or for another type of endpoint. The
node answers for its own loggers itself, also where another node answers for the rest. It waits for `min_offset`. `admit` then
asks the rule of the call's row which part of the request the caller may have, and a handler executes that part. An ApiError at
any step becomes a response by `refused`. A broker forwards a call that it does not answer; a controller refuses it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from google.protobuf.message import Message

from kraftlab.access.admission import RULES
from kraftlab.access.authorizer import AccessSettings, Authorizer, Rights
from kraftlab.access.calls import Admission, CallContext
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.image import MetadataImage
from kraftlab.rpc.calls import CALLS, refused
from kraftlab.rpc.methods import header_of
from kraftlab.rpc.server import Call

from . import logger_configs

DEFAULT_TIMEOUT_MS = 60_000
Default = TypeVar("Default", int, float)


def timeout_of(request: Message, default: Default) -> int | Default:
    """Return the time-out in the request's header."""
    header = header_of(request)
    return header.timeout_ms if header.HasField("timeout_ms") else default


def admit(api: str, rights: Rights, request: object, image: MetadataImage) -> Admission:
    """Return the part of a request that its caller may have; ApiError if there is none. The request is not changed."""
    return RULES[CALLS[api].rights](CallContext(api, rights, request, image))


class Service(ABC):
    """Answers to the calls of one node. `node_id` None: the node has no loggers. `access` None: everybody may call everything."""

    def __init__(self, cluster_id: str, endpoint_type: int, node_id: int | None, access: AccessSettings | None) -> None:
        self._cluster_id = cluster_id
        self._endpoint_type = endpoint_type
        self._node_id = node_id
        self._authorizer = Authorizer(access or AccessSettings())

    @abstractmethod
    def committed(self) -> tuple[MetadataImage, bool]:
        """The newest metadata of this node, and True if it is complete: authorization needs its ACLs."""

    @abstractmethod
    def fill(self, header: admin_pb2.ResponseHeader, offset: int | None) -> None:
        """Set the fields that every answer of this node has. `offset`: of the metadata in it; None: the newest of this node."""

    def answered(self, response: Message, offset: int | None = None) -> Message:
        """Fill in the header of a response to a call that was executed."""
        self.fill(getattr(response, "header"), offset)  # noqa: B009 - every response has one
        return response

    def check(self, call: Call) -> None:
        """Raise ApiError for a request that this node cannot answer to any caller."""
        row, header = CALLS[call.api], header_of(call.request)
        if header.cluster_id and header.cluster_id != self._cluster_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"The request is meant for cluster {header.cluster_id}, this is {self._cluster_id}. Check the address.",
            )
        if header.read_mode == admin_pb2.READ_MODE_LINEARIZABLE:
            if not row.is_replicated:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"{call.api} is about this node itself, which is not replicated and cannot be read linearizably; leave out "
                    "read_mode, and set min_offset if the node must have applied a certain change",
                )
        elif header.read_mode != admin_pb2.READ_MODE_COMMITTED:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown read mode {header.read_mode}.")
        row.check(call.request, self._endpoint_type)

    def rights(self, principal: str, host: str) -> Rights:
        """Return a caller's rights by the committed ACLs. ApiError if the ACLs are not loaded yet."""
        image, is_loaded = self.committed()
        return self._authorizer.rights(image.acls if is_loaded else None, principal, host)

    def admit(self, call: Call) -> Admission:
        """Return the part of a call that its caller may have; ApiError if there is none."""
        return admit(call.api, self.rights(call.principal, call.host), call.request, self.committed()[0])

    def is_about_loggers(self, call: Call) -> bool:
        """Return True if the call is about this node's loggers, among other things."""
        return self._node_id is not None and logger_configs.concerns(call.request)

    async def with_loggers(self, call: Call, others: Callable[[Call], Awaitable[Message]]) -> Message:
        """Answer for this node's loggers; `others` answers for the rest of the request. ApiError if the caller may not."""
        assert self._node_id is not None

        def admit(request: Any) -> Admission:
            return self.admit(call._replace(request=request))

        async def rest(request: Any) -> Message:
            return await others(call._replace(request=request))

        response: Any = await logger_configs.answer(call.api, call.request, self._node_id, admit, rest)
        if response.HasField("header"):
            return response  # type: ignore[no-any-return]
        return self.answered(response)

    def refused(self, call: Call, error: ApiError) -> Message:
        """Return a response that refuses the whole request, in the header and in the entries."""
        return refused(call.api, call.request, error)
