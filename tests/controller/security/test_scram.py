"""SCRAM credentials: set, refused and described."""

from __future__ import annotations

import base64
import hashlib
import random

import pytest

from kraftlab.access.sasl.scram import keys
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.controller.engine.state import EMPTY_STATE, Context, ControllerState, Settings
from kraftlab.controller.security.scram import alter, describe
from kraftlab.metadata.image import Provenance
from kraftlab.metadata.records import UserScramCredential

CONTEXT = Context(1000, random.Random(1), Settings("c", 3000), 0)


def upsertion(name: str = "u", mechanism: int = 1, iterations: int = 4096, **fields: bytes) -> pb.ScramCredentialUpsertion:
    made = {"salt": b"0123456789abcdef", "salted_password": b"1" * 32} | fields
    return pb.ScramCredentialUpsertion(name=name, mechanism=mechanism, iterations=iterations, **made)  # type: ignore[arg-type]


def deletion(name: str = "u", mechanism: int = 1) -> pb.ScramCredentialDeletion:
    return pb.ScramCredentialDeletion(name=name, mechanism=mechanism)


def altered(
    *entries: pb.ScramCredentialUpsertion | pb.ScramCredentialDeletion, state: ControllerState = EMPTY_STATE
) -> tuple[ControllerState, list[tuple[str, int, str]]]:
    request = pb.AlterUserScramCredentialsRequest(
        deletions=[entry for entry in entries if isinstance(entry, pb.ScramCredentialDeletion)],
        upsertions=[entry for entry in entries if isinstance(entry, pb.ScramCredentialUpsertion)],
    )
    outcome = alter(state, request, CONTEXT)
    results = [(result.user, result.error_code, result.error_message) for result in outcome.response.results]
    return state.replay(outcome.records, 0, Provenance(len(outcome.records), 1, 0)), results


def described(state: ControllerState, *names: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
    request = pb.DescribeUserScramCredentialsRequest()
    if names:
        request.users.CopyFrom(pb.ScramUserNames(values=[pb.ScramUserName(name=name) for name in names]))
    response = describe(state, request)
    return [
        (result.user, result.error_code, [(info.mechanism, info.iterations) for info in result.credential_infos])
        for result in response.results
    ]


def test_a_credential_is_kept_and_described() -> None:
    state, results = altered(upsertion(), upsertion(mechanism=2, iterations=8192))
    assert results == [("u", 0, "")]
    assert described(state, "u") == [("u", 0, [(1, 4096), (2, 8192)])]
    assert described(state) == [("u", 0, [(1, 4096), (2, 8192)])]


def test_the_keys_are_those_of_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    stored_key, server_key = keys("sha256", salted)
    assert base64.b64encode(stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


def test_the_salted_password_itself_is_not_kept() -> None:
    request = pb.AlterUserScramCredentialsRequest(upsertions=[upsertion()])
    (record,) = alter(EMPTY_STATE, request, CONTEXT).records
    assert isinstance(record, UserScramCredential)
    assert b"1" * 32 not in (record.salt, record.stored_key, record.server_key)


@pytest.mark.parametrize(
    ("entry", "code", "text"),
    [
        (upsertion(iterations=100), 93, "Too few iterations"),
        (upsertion(iterations=20_000), 93, "Too many iterations"),
        (upsertion(mechanism=0), 33, "Unknown SCRAM mechanism"),
        (upsertion(mechanism=9), 33, "Unknown SCRAM mechanism"),
        (upsertion(name=""), 93, "Username must not be empty"),
        (upsertion(salt=b""), 93, "Salt and salted password must not be empty"),
        (deletion(), 91, "Attempt to delete a user credential that does not exist"),
        (deletion(mechanism=7), 33, "Unknown SCRAM mechanism"),
    ],
)
def test_an_unacceptable_credential_is_refused(
    entry: pb.ScramCredentialUpsertion | pb.ScramCredentialDeletion, code: int, text: str
) -> None:
    state, results = altered(entry)
    assert results == [(entry.name, code, text)]
    assert state.image.scram == EMPTY_STATE.image.scram


def test_the_same_credential_twice_is_refused_once() -> None:
    text = "A user credential cannot be altered twice in the same request"
    assert altered(upsertion(), upsertion(iterations=5000))[1] == [("u", 92, text)]
    state, _ = altered(upsertion())
    assert altered(deletion(), upsertion(), state=state)[1] == [("u", 92, text)]


def test_an_error_of_one_user_leaves_other_users_alone() -> None:
    state, results = altered(upsertion("a"), upsertion("b", iterations=1), upsertion("b", mechanism=2))
    assert results == [("a", 0, ""), ("b", 93, "Too few iterations")]
    assert described(state) == [("a", 0, [(1, 4096)])]


def test_a_credential_is_removed() -> None:
    state, _ = altered(upsertion())
    state, results = altered(deletion(), state=state)
    assert results == [("u", 0, "")]
    assert described(state, "u") == [("u", 91, [])]


def test_a_user_that_is_asked_for_twice_is_refused_once() -> None:
    state, _ = altered(upsertion())
    assert described(state, "u", "u") == [("u", 92, [])]
