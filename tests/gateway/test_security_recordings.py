"""Recordings of Apache Kafka's listeners, played against our authenticator: the same bytes in, the same bytes out.

The server's nonces are those of the recording, so that proofs of clients fit and answers are equal byte for byte. Passwords are
NAME-secret. `DEPARTURES` has the connections on which we answer otherwise, and why. What the listener itself does is written into
`actions`: bytes of another protocol, and requests that no broker serves (Envelope).

Handshakes (46, 47: `test_secured_listener.py`) and configs (51) have no bytes to repeat: their outcomes are compared. These
recordings are not played:

* 48: its rules and names are in `tests/access/data`, with all that Kafka's own classes made of them.
* 52: our nodes look at the files themselves and load nothing that cannot serve (`tests/node/test_listener_tls.py`); no security
  config changes by IncrementalAlterConfigs.
* 53, 55, 56: our controllers speak another protocol with their peers, who prove which node they are: nobody but a controller
  votes or announces a leader (`tests/node/test_peer_senders.py`, `tests/wire/test_tls_network.py`).
* 58: `tests/config/test_bootstrap_scram.py` has the same arguments.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest

from kraftlab.access.entrance import SaslSettings
from kraftlab.access.sasl.exchange import Exchange
from kraftlab.access.sasl.oauthbearer import OAuthBearer, TokenRules, load
from kraftlab.access.sasl.plain import Plain
from kraftlab.access.sasl.scram import HASHES, Scram, keys
from kraftlab.config.topic_configs import BROKER_KEYS
from kraftlab.gateway.authenticator import Action, Answer, Authenticator, ConnectionEnd, Serve
from kraftlab.gateway.codec import peek
from kraftlab.gateway.door import OFFERS
from kraftlab.messages.generated.sasl_authenticate_response import SaslAuthenticateResponse
from kraftlab.messages.generated.sasl_handshake_response import SaslHandshakeResponse
from kraftlab.messages.reading import read
from kraftlab.metadata.scram import ScramCredential, ScramMechanism
from kraftlab.wire.parts import joined

FOLDER = Path(__file__).with_name("security_recordings")
RECORDINGS = [path for path in sorted(FOLDER.glob("[0-9]*.json")) if path.name[:2] not in ("46", "47", "51")]
KEYS = load(FOLDER / "jwks.json")
RULES = TokenRules(("kafka",), "https://issuer.test")
SHA_256, SHA_512 = ScramMechanism
PASSWORDS = {name: f"{name}-secret" for name in ("alice", "bob", "admin")}
SCRAM_USERS = {("alice", SHA_256), ("alice", SHA_512), ("bob", SHA_256), ("temp", SHA_256), ("only512", SHA_512)}
SESSIONS_MS = {"REAUTH": {"PLAIN": 3000, "SCRAM-SHA-256": 3000}}
WAITS_S = {("40-reauthentication", 11): 1.1, ("40-reauthentication", 14): 3.5}
"""Time before a step, where it matters."""
FRAME_BYTES_MAX = 100 * 1024 * 1024
"""Default of socket.request.max.bytes."""
DELAYED_MS, ANSWER_DELAYED_MS = 90, 250
"""Apache Kafka closes after a failed login, and answers it, later than this; it does everything else earlier."""
RESPONSES = {"SaslHandshake": SaslHandshakeResponse, "SaslAuthenticate": SaslAuthenticateResponse}

Play = tuple[str, int]
"""Recording, and number of the connection."""


class Departure(NamedTuple):
    """Our answer instead of the recorded one. `ends`: the connection is closed after it."""

    error_code: int
    ends: bool
    why: str


UNKNOWN_USER = Departure(0, False, "an unknown user is not told apart from a wrong password")
BINDING = Departure(58, True, "the channel binding of the last message is compared with the header of the first one")
DEPARTURES: dict[Play, Departure] = {
    ("30-scram-wrong", 2): UNKNOWN_USER,
    ("30-scram-wrong", 3): UNKNOWN_USER,
    **{("32-scram-channel", number): BINDING for number in (1, 2, 3, 4)},
    ("35-scram-names", 1): UNKNOWN_USER,
    ("35-scram-names", 13): UNKNOWN_USER,
    ("35-scram-names", 14): UNKNOWN_USER,
    ("36-scram-order", 6): Departure(
        58, True, "a proof of another length is a wrong proof, where Kafka closes without an answer"
    ),
    ("38-scram-removed", 3): UNKNOWN_USER,
    ("42-reauthentication-wrong", 1): Departure(58, True, "another mechanism in a second login is answered"),
    ("42-reauthentication-wrong", 5): Departure(58, True, "an unknown mechanism in a second login is answered"),
    ("43-oauthbearer", 6): Departure(0, False, "a token within the clock skew is refused, instead of a session without time"),
    ("43-oauthbearer", 18): Departure(58, True, "another scheme is answered, where Kafka closes without an answer"),
}


class Listeners:
    """The listeners of one recording, with its users, clock and nonces."""

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self.now_s = 0.0
        self.date_s = 0.0
        self.nonce = ""
        self.salt, self.iterations = b"salt of none", 4096
        self.scram_users = set(SCRAM_USERS)
        self.salted: dict[str, ScramCredential] = {}
        offers = {step["listener"]: names for step in steps if (names := (step.get("decoded") or {}).get("mechanisms"))}
        self._sasl = {
            listener: SaslSettings({name: self._mechanism(name) for name in names}, SESSIONS_MS.get(listener, {}))
            for listener, names in offers.items()
        }

    def connection(self, listener: str) -> Authenticator:
        if listener in ("OPEN", "TLS0"):
            return Authenticator(None)
        return Authenticator(self._sasl.get(listener) or SaslSettings({"PLAIN": self._mechanism("PLAIN")}))

    def _mechanism(self, name: str) -> Callable[[], Exchange]:
        if name == "PLAIN":
            return lambda: Plain(PASSWORDS)
        if name == "OAUTHBEARER":
            return lambda: OAuthBearer(RULES, lambda: KEYS, lambda: self.date_s)
        mechanism = ScramMechanism[name.replace("-", "_")]
        return lambda: Scram(mechanism, self._credential, b"secret", lambda: self.nonce)

    def _credential(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        if (name, mechanism) not in self.scram_users:
            return self.salted.get(name) if mechanism is SHA_256 else None
        hashed = HASHES[mechanism]
        salted = hashlib.pbkdf2_hmac(hashed, f"{name}-secret".encode(), self.salt, self.iterations)
        return ScramCredential(self.salt, *keys(hashed, salted), self.iterations)

    def prepare(self, step: dict[str, Any]) -> None:
        """Take over what the recorded server drew for this step, and changes of users in between."""
        if step.get("api") == "AlterUserScramCredentials":
            for entry in step["body"]["upsertions"]:
                salt, salted = bytes.fromhex(entry["salt"]), bytes.fromhex(entry["salted_password"])
                self.salted[entry["name"]] = ScramCredential(salt, *keys("sha256", salted), entry["iterations"])
        if "removes the credential of temp" in step.get("note", ""):
            self.scram_users.remove(("temp", SHA_256))
        message, answer = step.get("token", ""), step.get("answer_token", "")
        if answer.startswith("r="):
            parts = dict(part.split("=", 1) for part in answer.split(","))
            sent = sent_frames(step)[0]
            client = sent[sent.index(b",r=") + 3 :].split(b",")[0].rstrip(b"\0").decode()
            self.nonce = parts["r"].removeprefix(client)
            if "s" in parts:
                self.salt, self.iterations = base64.b64decode(parts["s"]), int(parts["i"])
        lifetime_ms = (step.get("decoded") or {}).get("session_lifetime", 0) if "JWT" in message else 0
        if lifetime_ms:
            token = re.split(rb"auth=bearer ", sent_frames(step)[0], flags=re.IGNORECASE)[1].split(b"\1")[0]
            expires = jwt.decode(token, options={"verify_signature": False})["exp"]
            self.date_s = expires - lifetime_ms / 1000


def sent_frames(step: dict[str, Any]) -> list[bytes]:
    """Return the frames of a step with their lengths. The last may be cut off; a long token, which the recording shortened, is
    filled again.
    """
    data = bytes.fromhex(step["send"].rstrip("…"))
    (size,) = struct.unpack(">i", data[:4]) if len(data) >= 4 else (0,)
    if step["send"].endswith("…") and size <= FRAME_BYTES_MAX:
        data += data[-1:] * (size + 3 - len(data)) + b"\0"
    frames = []
    while data:
        size = max(struct.unpack(">i", data[:4])[0], 0) + 4 if len(data) >= 4 else len(data)
        frames.append(data[:size])
        data = data[size:]
    return frames


def actions(connection: Authenticator, step: dict[str, Any], now_s: float) -> Iterator[Action]:
    """Do what a listener does with the bytes of a step."""
    for frame in sent_frames(step):
        (size,) = struct.unpack(">i", frame[:4])
        limit = connection.frame_bytes_max
        if not 0 <= size <= (limit or FRAME_BYTES_MAX):
            action: Action = ConnectionEnd("another protocol") if limit is None else connection.bad_size(size)
        elif len(frame) < size + 4:
            return
        else:
            action = connection.receive(frame[4:], now_s)
            if isinstance(action, Serve) and peek(frame[4:]).key not in OFFERS:
                action = ConnectionEnd("not served")
        yield action
        if isinstance(action, ConnectionEnd):
            return


def told(action: Action | None) -> bytes:
    return b"".join(bytes(part) for part in joined(action.parts)) if isinstance(action, Answer | ConnectionEnd) else b""


def fits(action: Action | None, step: dict[str, Any]) -> bool:
    """Return True if the action is what the recording has."""
    receive = step["receive"]
    if action is None:
        return receive is None or receive.startswith("nothing")
    error_code = (step.get("decoded") or {}).get("error_code")
    if isinstance(action, Serve):
        return receive != "closed" and error_code != 34
    if receive == "closed":
        return isinstance(action, ConnectionEnd) and not told(action) and action.failed == (step["after_ms"] > DELAYED_MS)
    expected, whole = receive.rstrip("…"), told(action).hex()
    is_equal = whole.startswith(expected) if receive.endswith("…") else whole == expected
    return is_equal and (isinstance(action, ConnectionEnd) and action.failed) == (step["after_ms"] > ANSWER_DELAYED_MS)


def departs(action: Action | None, step: dict[str, Any], departure: Departure) -> bool:
    """Return True if the action is the one of the table."""
    if not isinstance(action, Answer | ConnectionEnd) or not action.parts:
        return False
    kind = RESPONSES[step["api"]]
    answer, _ = read(kind, step["version"], told(action), 8 + (step["version"] >= kind.FLEXIBLE))
    return answer.error_code == departure.error_code and isinstance(action, ConnectionEnd) == departure.ends


@pytest.mark.parametrize("path", RECORDINGS, ids=[path.stem for path in RECORDINGS])
def test_answers_as_recorded(path: Path) -> None:
    steps: list[dict[str, Any]] = json.loads(path.read_text())["steps"]
    listeners = Listeners(steps)
    connections: dict[int, Authenticator] = {}
    waiting: defaultdict[int, deque[Action]] = defaultdict(deque)
    ended: set[int] = set()
    departed: set[int] = set()
    for number, step in enumerate(steps):
        listeners.prepare(step)
        listeners.now_s += WAITS_S.get((path.stem, number), 0)
        key = step.get("connection", 0)
        if step["send"] == "connect":
            connections[key] = listeners.connection(step["listener"])
            continue
        if key not in connections or key in departed:
            continue
        if key in ended:
            assert step["receive"] == "closed", (number, step)
            continue
        if step["send"] is not None:
            waiting[key].extend(actions(connections[key], step, listeners.now_s))
        action = waiting[key].popleft() if waiting[key] else None
        assert "principal" not in step or action == Serve(step["principal"])
        if not fits(action, step):
            departure = DEPARTURES.get((path.stem, key))
            assert departure is not None and departs(action, step, departure), (number, action, told(action), step)
            departed.add(key)
        if isinstance(action, ConnectionEnd):
            ended.add(key)
    assert departed == {number for name, number in DEPARTURES if name == path.stem}


def test_security_configs_have_the_recorded_types() -> None:
    """Config: type, sensitive, read-only."""
    recorded = json.loads((FOLDER / "51-describe-configs.json").read_text())["configs"]
    ours = {name: BROKER_KEYS[name] for name in recorded}
    assert {name: [key.type.name, key.type.name == "PASSWORD", not key.dynamic] for name, key in ours.items()} == recorded
