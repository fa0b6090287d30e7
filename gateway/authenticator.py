"""SASL on one connection of a Kafka listener: the requests that each state accepts (KIP-43, KIP-152, KIP-368).

Theory of operation. The listener gives every frame to `receive`, and executes the one action that comes back: send an answer,
serve the request, or end the connection. Frames are judged one by one, in order, also if they arrive together. All rules about
SaslHandshake and SaslAuthenticate are here; listeners without SASL use the same class, which then begins authenticated.

| state | accepts | any other request |
| --- | --- | --- |
| FIRST | ApiVersions (→ HANDSHAKE), SaslHandshake (→ AUTHENTICATE or TOKENS) | the connection is closed at once |
| HANDSHAKE | SaslHandshake (→ AUTHENTICATE or TOKENS) | closed at once |
| AUTHENTICATE, after SaslHandshake version 1 | SaslAuthenticate (→ AUTHENTICATED) | ILLEGAL_SASL_STATE, then closed |
| TOKENS, after SaslHandshake version 0 | tokens without a header (→ AUTHENTICATED) | all frames are tokens |
| AUTHENTICATED | every request | SaslHandshake and SaslAuthenticate: ILLEGAL_SASL_STATE |

A session has an end if connections.max.reauth.ms or the credential says so. SaslHandshake then begins a new login on the living
connection, at most once a second, as the same user and by the same mechanism. The first other request after the session's end
closes the connection; nothing happens without a request.

A failed login ends the connection: its answer is held back for connection.failed.authentication.delay.ms, the close follows the
answer, and nothing more is read. Not checked here: the time that a login may take (`half_open.py`), and rights.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kraftlab.access.entrance import SaslSettings
from kraftlab.access.sasl.exchange import Challenge, Exchange, Failure, Result, Success, Unavailable
from kraftlab.access.users import ANONYMOUS, PRINCIPAL_TYPE
from kraftlab.common.errors import ErrorCode
from kraftlab.messages.catalog import API_VERSIONS, request_class, response_class
from kraftlab.messages.generated.sasl_authenticate_response import SaslAuthenticateResponse
from kraftlab.messages.generated.sasl_handshake_response import SaslHandshakeResponse
from kraftlab.messages.schema import Message
from kraftlab.rpc.api_versions import names_software
from kraftlab.wire.parts import InMemory, Part

from .codec import Header, MalformedRequest, decode_request, encode_response, peek, with_length

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
REAUTHENTICATION_INTERVAL_S = 1.0
_SHOWN_MAX = 40
"""Characters of a client's text in a reason."""


class State(enum.Enum):
    FIRST = "before ApiVersions"
    HANDSHAKE = "before SaslHandshake"
    AUTHENTICATE = "within SaslAuthenticate"
    TOKENS = "within tokens"
    AUTHENTICATED = "authenticated"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Answer:
    """Send this; the connection goes on."""

    parts: Sequence[Part] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Serve:
    """Answer the request, which comes from this principal."""

    principal: str


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """Send `parts`, if there are some, and close. `failed`: the login failed: count it, and wait for
    connection.failed.authentication.delay.ms before both. `reason` is for the log.
    """

    reason: str
    failed: bool = False
    parts: Sequence[Part] = field(default=(), repr=False)


Action = Answer | Serve | ConnectionEnd


class Authenticator:
    """State of one connection. Without `sasl` the client is `principal` from the start."""

    def __init__(self, sasl: SaslSettings | None, principal: str = ANONYMOUS) -> None:
        self._sasl = sasl or SaslSettings({})
        self._state = State.FIRST if sasl else State.AUTHENTICATED
        self._serve: Serve | None = None if sasl else Serve(principal)
        """The action for requests of the user; None before the first login."""
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._refusal = ""
        """Text that answers the next token, whatever token it is."""
        self._session_end_s = math.inf
        self._begun_again_s = -math.inf

    def __repr__(self) -> str:
        return f"Authenticator({self._state.value}, {self._serve}, {self._mechanism or 'no mechanism'})"

    @property
    def is_authenticated(self) -> bool:
        """True from the first login on, also while another one is under way."""
        return self._serve is not None

    @property
    def frame_bytes_max(self) -> int | None:
        """Limit of the next frame, which may be empty; None: that of all requests, socket.request.max.bytes."""
        return None if self._state is State.AUTHENTICATED else self._sasl.frame_bytes_max

    def bad_size(self, size: int) -> ConnectionEnd:
        """Return the action for a frame with a length that is negative or above the limit."""
        return self._end(f"a frame has {size} bytes, expected at most {self._sasl.frame_bytes_max}", failed=True)

    def receive(self, frame: InMemory, now_s: float) -> Action:
        """Return the action for a frame, without its length. `now_s`: seconds of a clock that only goes forward."""
        if self._state is State.ENDED:
            return ConnectionEnd("the connection is over")
        if self._state is State.TOKENS:
            return self._judge(None, bytes(frame), now_s)
        try:
            head = peek(frame)
            if self._state is State.AUTHENTICATED:
                if head.key == SASL_HANDSHAKE and self._may_begin_again(now_s):
                    self._state = State.FIRST
                elif now_s > self._session_end_s:
                    return self._end("the session ended and the client did not authenticate again")
                elif self._serve is not None and head.key not in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
                    return self._serve
            handle = _ACCEPTED.get((self._state, head.key))
            if handle is None:
                handle = Authenticator._refuse if self._state is State.AUTHENTICATE else Authenticator._close
            return handle(self, head, frame, now_s)
        except MalformedRequest as error:
            return self._end(str(error))

    def _may_begin_again(self, now_s: float) -> bool:
        if self._session_end_s == math.inf or now_s - self._begun_again_s < REAUTHENTICATION_INTERVAL_S:
            return False
        self._begun_again_s = now_s
        return True

    def _api_versions(self, head: Header, frame: InMemory, now_s: float) -> Action:
        """The door answers: it also refuses an unknown version or a bad name, and the client may then try again."""
        kind = request_class(API_VERSIONS)
        if kind.OLDEST <= head.version <= kind.NEWEST:
            body = decode_request(frame).body
            if head.version < 3 or (names_software(body.client_software_name) and names_software(body.client_software_version)):
                self._state = State.HANDSHAKE
        return Serve(ANONYMOUS)

    def _handshake(self, head: Header, frame: InMemory, now_s: float) -> Action:
        name, served = _body(head, frame).mechanism, tuple(self._sasl.mechanisms)
        if name not in served:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED if self.is_authenticated else ErrorCode.UNSUPPORTED_SASL_MECHANISM
            reason = f"mechanism {name[:_SHOWN_MAX]!r} is not enabled, enabled are {', '.join(served)}"
            return self._fail(reason, encode_response(head, SaslHandshakeResponse(code, served)))
        self._refusal = ""
        if self.is_authenticated and name != self._mechanism:
            self._refusal = (
                f"SASL mechanism '{name}' requested by client is not supported for re-authentication of mechanism "
                f"'{self._mechanism}'"
            )
        else:
            self._mechanism = name
        self._exchange = self._sasl.mechanisms[name]()
        self._state = State.AUTHENTICATE if head.version else State.TOKENS
        return Answer(encode_response(head, SaslHandshakeResponse(ErrorCode.NONE, served)))

    def _authenticate(self, head: Header, frame: InMemory, now_s: float) -> Action:
        return self._judge(head, _body(head, frame).auth_bytes, now_s)

    def _judge(self, head: Header | None, token: bytes, now_s: float) -> Action:
        """Answer a token, by a token alone if it came without a header."""
        match self._result(token):
            case Challenge(answer):
                return Answer(_token_answer(head, answer, 0))
            case Success() as success:
                return Answer(_token_answer(head, success.token, self._log_in(success, now_s)))
            case Unavailable(reason):
                return self._end(reason)
            case Failure(text, reason):
                response = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
                for_log = f"{text}: {reason}" if reason else f"{text}"
                return self._fail(for_log, [] if head is None else encode_response(head, response))

    def _result(self, token: bytes) -> Result:
        """Return the mechanism's result, with the rules about a second login on one connection. A failure has its text."""
        assert self._exchange is not None
        result = Failure(self._refusal) if self._refusal else self._exchange.step(token)
        if isinstance(result, Success) and self._serve is not None and self._serve.principal != _principal(result.name):
            users = (self._serve.principal, _principal(result.name))
            old, new = (user.replace(":", ".", 1) for user in users)
            result = Failure(f"Cannot change principals during re-authentication from {old}: {new}")
        if isinstance(result, Failure) and result.text is None:
            invalid = f"due to invalid credentials with SASL mechanism {self._mechanism}"
            result = Failure(f"Authentication failed during {self._purpose} {invalid}", result.reason)
        return result

    def _log_in(self, success: Success, now_s: float) -> int:
        """Begin a session, and return its lifetime in milliseconds, 0 if it has no end."""
        limits = (self._sasl.max_reauth_ms.get(self._mechanism) or None, success.lifetime_ms)
        lifetime_ms = min((limit for limit in limits if limit is not None), default=None)
        self._session_end_s = math.inf if lifetime_ms is None else now_s + lifetime_ms / 1000
        self._serve = Serve(_principal(success.name))
        self._state, self._exchange = State.AUTHENTICATED, None
        return lifetime_ms or 0

    def _handshake_refused(self, head: Header, frame: InMemory, now_s: float) -> Action:
        _body(head, frame)
        return Answer(encode_response(head, SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)))

    def _authenticate_refused(self, head: Header, frame: InMemory, now_s: float) -> Action:
        _body(head, frame)
        text = "SaslAuthenticate request received after successful authentication"
        return Answer(encode_response(head, SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, text)))

    def _close(self, head: Header, frame: InMemory, now_s: float) -> Action:
        reason = f"API {head.key} version {head.version} before the login"
        return self._end(f"{reason}; set security.protocol to that of the listener in the client's configuration")

    def _refuse(self, head: Header, frame: InMemory, now_s: float) -> Action:
        """Refuse a request within a login, in its own schema as far as that has a place for an error."""
        try:
            request, response = request_class(head.key), response_class(head.key)
        except KeyError:
            raise MalformedRequest(f"API {head.key} is unknown") from None
        if head.key == API_VERSIONS and head.version > request.NEWEST:
            head = head._replace(version=0)
        _check_version(head, request)
        text = f"Unexpected Kafka request of type {_upper_case(request)} during SASL authentication."
        values = {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": text}
        fields = {known.name for known in response.FIELDS if known.is_in(head.version)}
        answer = response(**{name: value for name, value in values.items() if name in fields})
        return self._fail(text, encode_response(head, answer))

    @property
    def _purpose(self) -> str:
        return "re-authentication" if self.is_authenticated else "authentication"

    def _fail(self, text: str, parts: Sequence[Part]) -> ConnectionEnd:
        return self._end(f"failed {self._purpose} ({text})", parts, failed=True)

    def _end(self, reason: str, parts: Sequence[Part] = (), *, failed: bool = False) -> ConnectionEnd:
        self._state, self._exchange = State.ENDED, None
        return ConnectionEnd(reason, failed, parts)


_Handle = Callable[[Authenticator, Header, InMemory, float], Action]
_ACCEPTED: Mapping[tuple[State, int], _Handle] = {
    (State.FIRST, API_VERSIONS): Authenticator._api_versions,
    (State.FIRST, SASL_HANDSHAKE): Authenticator._handshake,
    (State.HANDSHAKE, SASL_HANDSHAKE): Authenticator._handshake,
    (State.AUTHENTICATE, SASL_AUTHENTICATE): Authenticator._authenticate,
    (State.AUTHENTICATED, SASL_HANDSHAKE): Authenticator._handshake_refused,
    (State.AUTHENTICATED, SASL_AUTHENTICATE): Authenticator._authenticate_refused,
}


def _body(head: Header, frame: InMemory) -> Any:
    """Decode a request. MalformedRequest, also for a version that is not served."""
    _check_version(head, request_class(head.key))
    return decode_request(frame).body


def _check_version(head: Header, request: type[Message]) -> None:
    if not request.OLDEST <= head.version <= request.NEWEST:
        raise MalformedRequest(f"API {head.key} has no version {head.version}")


def _token_answer(head: Header | None, token: bytes, lifetime_ms: int) -> Sequence[Part]:
    if head is None:
        return with_length(token)
    return encode_response(head, SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms))


def _principal(name: str) -> str:
    return f"{PRINCIPAL_TYPE}:{name}"


def _upper_case(request: type[Message]) -> str:
    """Return the name of an API as Kafka's texts have it: DESCRIBE_CLUSTER."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", request.__name__.removesuffix("Request")).upper()
