"""The way of an admin call to the active controller: in an Envelope over peer frames, until it is answered or its time is over.

While there is no active controller, or the controller has just moved, the broker looks for it again until the call's deadline. If
a change may have reached a controller meanwhile, its outcome is unknown. A change that must not be executed twice is sent
again only if it cannot have arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec
import trio

from kraftlab.common.decoding import Decoder
from kraftlab.common.errors import ApiError, ErrorCode, describe
from kraftlab.metadata.peer_rpc import Api, EnvelopeRequest, EnvelopeResponse
from kraftlab.wire.frames import FrameError
from kraftlab.wire.parts import InMemory
from kraftlab.wire.transport import PeerError, PeerTimeout, PeerUnreachable

from ..control.controller_channel import NoController

RETRY_BACKOFF_S = 0.05

_encode = msgspec.msgpack.encode
_envelope = Decoder(EnvelopeResponse)


class Channel(Protocol):
    """The way to the active controller (`ControllerChannel`)."""

    @property
    def controller_id(self) -> int: ...

    async def pass_on(self, api: int, body: bytes, *, timeout_ms: int) -> InMemory: ...

    async def wait_for_change(self, timeout_s: float) -> None: ...


class OutcomeUnknown(ApiError):
    """A change may have been executed, or may still be."""


class CallOnItsWay(NamedTuple):
    """A call on its way. `envelope` wraps it for an attempt, with the milliseconds that are left: a call must not be executed
    after its client's deadline.
    """

    api: str
    envelope: Callable[[int], EnvelopeRequest]
    is_change: bool
    is_repeatable: bool


async def forward(channel: Channel, call: CallOnItsWay, deadline: float) -> EnvelopeResponse:
    """Return the active controller's answer. ApiError: there is none, or the call could not be executed; OutcomeUnknown."""
    reason, is_open = "no controller is known to lead; make sure that a majority of the controllers runs", False
    while (rest_s := deadline - trio.current_time()) > 0:
        if channel.controller_id < 0:
            await channel.wait_for_change(rest_s)
            continue
        rest_ms = max(1, int(rest_s * 1000))
        body = _encode(call.envelope(rest_ms))
        try:
            response = _envelope.decode(await channel.pass_on(Api.ENVELOPE, body, timeout_ms=rest_ms))
        except FrameError as error:
            refusal = f"Not carried out, since it cannot be passed on: {error}, or send it to a controller."
            raise ApiError(ErrorCode.INVALID_REQUEST, refusal) from error
        except PeerTimeout:
            is_open = call.is_change
            break
        except PeerUnreachable as error:
            may_have_arrived = not error.refused and not isinstance(error, NoController)
            reason = str(error)
            if may_have_arrived and not call.is_repeatable:
                raise _lost(call, reason) from error
            is_open = is_open or (call.is_change and may_have_arrived)
        except PeerError as error:
            if error.code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE):
                raise ApiError(_code(error.code), error.message) from error
            reason = error.message
        except msgspec.MsgspecError as error:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller's answer cannot be read: {error}") from error
        else:
            if response.error == ErrorCode.NONE:
                return response
            if response.error != ErrorCode.NOT_CONTROLLER:
                text = response.message or f"the controller answered {describe(response.error)}"
                raise ApiError(_code(response.error), text)
            reason = response.message or "the controller has moved"
            if response.outcome_unknown:
                if not call.is_repeatable:
                    raise _lost(call, reason)
                is_open = True
        await channel.wait_for_change(min(RETRY_BACKOFF_S, max(rest_s, 0)))
    if is_open:
        text = f"{call.api} was passed on and not answered in time; whether it was carried out is unknown ({reason})"
        raise OutcomeUnknown(ErrorCode.REQUEST_TIMED_OUT, text)
    raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{call.api} could not be passed on to the active controller in time: {reason}")


def _lost(call: CallOnItsWay, reason: str) -> OutcomeUnknown:
    """The answer to a change that may not be forwarded again."""
    return OutcomeUnknown(ErrorCode.NETWORK_EXCEPTION, f"{reason}; whether {call.api} was carried out is unknown")


def _code(code: int) -> ErrorCode:
    """Return a controller's error code; UNKNOWN_SERVER_ERROR for one that is not in the table."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
