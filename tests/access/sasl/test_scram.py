"""SCRAM: whole logins by our own client, and what each message may have."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.net.sasl.scram import SaslMechanismScram

from kraftlab.access.sasl.exchange import Challenge, Failure, NotLoaded, Result, Success, Unavailable
from kraftlab.access.sasl.plain import OTHER_AUTHORIZATION_ID
from kraftlab.access.sasl.scram import HASHES, Scram, keys, password_fits
from kraftlab.client.sasl import BadProof, scram
from kraftlab.client.security import ClientSecurity
from kraftlab.metadata.scram import ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism
NAMES = {SHA_256: "SCRAM-SHA-256", SHA_512: "SCRAM-SHA-512"}
SALT, ITERATIONS = b"0123456789abcdef", 4096
SECRET = b"secret of the cluster"


def salted(mechanism: ScramMechanism, password: str, salt: bytes = SALT) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, ITERATIONS)


def credential(mechanism: ScramMechanism, password: str, salt: bytes = SALT) -> ScramCredential:
    return ScramCredential(salt, *keys(HASHES[mechanism], salted(mechanism, password, salt)), ITERATIONS)


CREDENTIALS = {
    ("alice", SHA_256): credential(SHA_256, "alice-secret"),
    ("alice", SHA_512): credential(SHA_512, "alice-secret"),
    ("a=b,c", SHA_256): credential(SHA_256, "odd"),
    ("short", SHA_256): credential(SHA_256, "short-secret", b"7q"),
    ("only512", SHA_512): credential(SHA_512, "only512-secret"),
}


def server(mechanism: ScramMechanism = SHA_256) -> Scram:
    return Scram(mechanism, lambda name, kind: CREDENTIALS.get((name, kind)), SECRET)


class Refused(Exception):
    """The server ended the login."""


def login(exchange: Scram, mechanism: ScramMechanism, user: str, password: str) -> list[Result]:
    """Log in by the client of commands, and return the server's results."""
    results: list[Result] = []

    def send(token: bytes) -> bytes:
        results.append(exchange.step(token))
        answer = results[-1]
        if isinstance(answer, Challenge | Success):
            return answer.token
        raise Refused

    with contextlib.suppress(Refused):
        scram(ClientSecurity(mechanism=NAMES[mechanism], user=user, password=password), send, "rOprNGfwEbeRWgbNEkqO")
    return results


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        (SHA_256, "alice", "alice-secret"),
        (SHA_512, "alice", "alice-secret"),
        (SHA_256, "a=b,c", "odd"),
        (SHA_256, "short", "short-secret"),
        (SHA_512, "only512", "only512-secret"),
    ],
)
def test_both_sides_prove_that_they_know_the_password(mechanism: ScramMechanism, user: str, password: str) -> None:
    first, last = login(server(mechanism), mechanism, user, password)
    assert isinstance(first, Challenge)
    assert isinstance(last, Success)
    assert last.name == user


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_the_client_of_kafka_python_logs_in(mechanism: ScramMechanism) -> None:
    client = SaslMechanismScram(sasl_plain_username="alice", sasl_plain_password="alice-secret", sasl_mechanism=NAMES[mechanism])
    exchange, results = server(mechanism), []
    while not client.is_done():
        results.append(exchange.step(client.auth_bytes()))
        assert isinstance(results[-1], Challenge | Success)
        client.receive(results[-1].token)
    assert [type(result) for result in results] == [Challenge, Success]


@pytest.mark.parametrize("user", ["alice", "nobody", "only512", "ALICE", " alice"])
def test_an_unknown_user_fails_as_a_wrong_password_does(user: str) -> None:
    first, last = login(server(), SHA_256, user, "wrong")
    assert isinstance(first, Challenge)
    assert last == Failure()


def test_the_salt_of_an_unknown_user_is_always_the_same_one() -> None:
    def salt_of(user: str, mechanism: ScramMechanism = SHA_256, secret: bytes = SECRET) -> bytes:
        answer = Scram(mechanism, lambda name, kind: None, secret).step(f"n,,n={user},r=abc".encode())
        assert isinstance(answer, Challenge)
        return answer.token.split(b",", 1)[1]

    assert salt_of("nobody") == salt_of("nobody")
    salts = {salt_of("nobody"), salt_of("other"), salt_of("nobody", SHA_512), salt_of("nobody", secret=b"x")}
    assert len(salts) == 4
    assert all(salt.endswith(b",i=4096") for salt in salts)


def last_message(bare: bytes, answer: bytes, unproven: bytes, salted_password: bytes) -> bytes:
    """Return the client's last message, with a proof of everything."""
    client_key = hmac.digest(salted_password, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), b",".join((bare, answer, unproven)), "sha256")
    proof = bytes(mine ^ theirs for mine, theirs in zip(client_key, signature, strict=True))
    return unproven + b",p=" + base64.b64encode(proof)


ALICES = salted(SHA_256, "alice-secret")


def finish(header: bytes, bare: bytes, unproven: Callable[[bytes], bytes]) -> Result:
    """Log alice in with these messages. `unproven`: the last one without its proof, from the whole nonce."""
    exchange = server()
    answer = exchange.step(header + bare)
    if not isinstance(answer, Challenge):
        return answer
    nonce = answer.token.split(b",")[0].removeprefix(b"r=")
    return exchange.step(last_message(bare, answer.token, unproven(nonce), ALICES))


def repeated(header: bytes) -> Callable[[bytes], bytes]:
    return lambda nonce: b"c=" + base64.b64encode(header) + b",r=" + nonce


@pytest.mark.parametrize(
    ("header", "bare"),
    [
        (b"n,,", b"n=alice,r=abc"),
        (b"n,a=alice,", b"n=alice,r=abc"),
        (b"n,,", b"n=alice,r=abc,tokenauth=false"),
        (b"n,,", b"n=alice,r=abc,x=y"),
        (b"n,,", b"n=alice,r=abc,unknown=value,a=b"),
        (b"n,,", b"n=alice,r=" + b"x" * 100_000),
    ],
)
def test_the_first_message_may_have_extensions(header: bytes, bare: bytes) -> None:
    assert isinstance(finish(header, bare, repeated(header)), Success)


@pytest.mark.parametrize(
    "first",
    [
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=alice,r=abc,tokenauth=true",
        b"n,,n=alice,r=abc,a=b,tokenauth=TRUE,c=d",
        b"n,,n=a=b,r=abc",
        b"n,,n=a=3d,r=abc",
        b"n,,n=,r=abc",
        "n,,n=jürgen,r=abc".encode(),
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a b",
        b"n,,n=alice",
        b"n,,r=abc,n=alice",
        b"n,,n=alice,r=a,b",
        b"n,,n=alice,r=a,1=b",
        b"n,,n=alice,r=abc\n",
        b"c=biws,r=abc,p=AAAA",
        b"hello",
        b"",
        b"\xff\xff",
    ],
)
def test_other_first_messages_fail_at_once(first: bytes) -> None:
    assert server().step(first) == Failure()


@pytest.mark.parametrize("user", [b"alice", b"nobody"])
def test_an_authorization_id_is_the_users_own_name(user: bytes) -> None:
    assert server().step(b"n,a=admin,n=%b,r=abc" % user) == Failure(OTHER_AUTHORIZATION_ID)


def test_mandatory_extensions_fail_at_the_last_message() -> None:
    assert isinstance(server().step(b"n,,m=x,n=alice,r=abc"), Challenge)
    assert finish(b"n,,", b"m=x,n=alice,r=abc", repeated(b"n,,")) == Failure()


@pytest.mark.parametrize(
    "unproven",
    [
        lambda nonce: b"c=biws,r=abc" + nonce,
        lambda nonce: b"c=biws,r=" + nonce.removeprefix(b"abc"),
        lambda nonce: b"c=biws,r=abc",
        lambda nonce: b"c=biws,r=" + nonce + b"x",
        lambda nonce: b"c=eSws,r=" + nonce,
        lambda nonce: b"c=cD10bHMtdW5pcXVlLCx4eXo=,r=" + nonce,
        lambda nonce: b"c=,r=" + nonce,
        lambda nonce: b"c=!!!!,r=" + nonce,
        lambda nonce: b"c=biws,r=" + nonce + b",ext=1",
        lambda nonce: b"r=" + nonce + b",c=biws",
    ],
    ids=["nonce doubled", "server's", "client's", "longer", "y,,", "p=", "empty", "not base64", "extension", "order"],
)
def test_the_last_message_repeats_nonce_and_header(unproven: Callable[[bytes], bytes]) -> None:
    result = finish(b"n,,", b"n=alice,r=abc", unproven)
    assert isinstance(result, Failure)
    assert result.text is None


def test_the_log_names_the_client_that_doubles_its_nonce() -> None:
    doubled = finish(b"n,,", b"n=alice,r=abc", lambda nonce: b"c=biws,r=abc" + nonce)
    assert doubled == Failure(None, "the client's nonce is doubled, as by librdkafka before 2.6.1")


@pytest.mark.parametrize("proof", [b"AAAA", b"", b"!!!!", b"=", base64.b64encode(bytes(33)), base64.b64encode(bytes(32))])
def test_a_wrong_proof_fails_whatever_its_length(proof: bytes) -> None:
    exchange = Scram(SHA_256, lambda name, kind: CREDENTIALS.get((name, kind)), SECRET, lambda: "xyz")
    exchange.step(b"n,,n=alice,r=abc")
    assert exchange.step(b"c=biws,r=abcxyz,p=" + proof) == Failure()


def test_a_login_fits_its_own_exchange_only() -> None:
    nonces = iter(("one", "two"))
    messages = [b"n,,n=alice,r=abc"]
    for expected in (Success, Failure):
        exchange = Scram(SHA_256, lambda name, kind: CREDENTIALS.get((name, kind)), SECRET, lambda: next(nonces))
        answer = exchange.step(messages[0])
        assert isinstance(answer, Challenge)
        messages.append(last_message(b"n=alice,r=abc", answer.token, b"c=biws,r=abcone", ALICES))
        assert isinstance(exchange.step(messages[1]), expected)


def test_a_credential_that_is_removed_during_a_login_still_counts() -> None:
    users = {("alice", SHA_256): CREDENTIALS["alice", SHA_256]}
    exchange = Scram(SHA_256, lambda name, kind: users.get((name, kind)), SECRET, lambda: "xyz")
    answer = exchange.step(b"n,,n=alice,r=abc")
    assert isinstance(answer, Challenge)
    users.clear()
    last = last_message(b"n=alice,r=abc", answer.token, b"c=biws,r=abcxyz", ALICES)
    assert isinstance(exchange.step(last), Success)


def test_a_node_without_metadata_does_not_judge() -> None:
    def lookup(name: str, kind: ScramMechanism) -> ScramCredential | None:
        raise NotLoaded

    assert isinstance(Scram(SHA_256, lookup, SECRET).step(b"n,,n=alice,r=abc"), Unavailable)


def test_the_client_notices_a_server_that_does_not_know_the_password() -> None:
    impostor = Scram(SHA_256, lambda name, kind: CREDENTIALS["alice", SHA_256], SECRET)

    def send(token: bytes) -> bytes:
        answer = impostor.step(token)
        return answer.token if isinstance(answer, Challenge) else b"v=AAAA"

    with pytest.raises(BadProof):
        scram(ClientSecurity(mechanism="SCRAM-SHA-256", user="alice", password="alice-secret"), send, "abc")


PARTS = [
    b"n",
    b"y",
    b",",
    b"=",
    b"n=",
    b"alice",
    b"r=",
    b"abc",
    b"a=",
    b"m=",
    b"c=",
    b"biws",
    b"p=",
    b"AAAA",
    b"=2C",
    b"\0",
    b"\xff",
]
MESSAGES = st.binary() | st.lists(st.sampled_from(PARTS)).map(b"".join)


@given(st.sampled_from(list(ScramMechanism)), MESSAGES, MESSAGES)
@example(SHA_256, b"n,,n=alice,r=abc", b"c=biws,r=abcxyz,p=AAA")
def test_any_messages_have_results(mechanism: ScramMechanism, first: bytes, last: bytes) -> None:
    exchange = Scram(mechanism, lambda name, kind: CREDENTIALS.get((name, kind)), SECRET, lambda: "xyz")
    assert isinstance(exchange.step(first), Challenge | Failure)
    assert isinstance(exchange.step(last), Challenge | Failure)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_password_itself_is_checked_against_the_credential(mechanism: ScramMechanism) -> None:
    known = CREDENTIALS["alice", mechanism]
    assert password_fits(known, mechanism, "alice-secret")
    assert not password_fits(known, mechanism, "alice-secreT")
