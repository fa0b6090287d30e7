"""SCRAM credentials of users in `kraftlab configs`: `SCRAM-SHA-256=[iterations=8192,password=…]`.

The password never leaves this process: the request holds RFC 5802's SaltedPassword.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import answer_of, raise_first_error
from kraftlab.client.credentials import DEFAULT_ITERATIONS, scram_credential
from kraftlab.common.errors import ErrorCode
from kraftlab.metadata.scram import ScramMechanism

from ..configs.text import Changes, Entity, updated_line
from ..output import BadArgument, Output

if TYPE_CHECKING:
    from kraftlab.client import AdminClient

MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
_NAMES = {int(mechanism): name for name, mechanism in MECHANISMS.items()}


class Credential(NamedTuple):
    """The public part of a user's credential."""

    user: str
    mechanism: str
    iterations: int


def concerns(changes: Changes) -> bool:
    """Return whether the changes are about credentials."""
    return not MECHANISMS.keys().isdisjoint((*changes.added, *changes.deleted))


def alter(client: AdminClient, out: Output, entities: Sequence[Entity], changes: Changes) -> None:
    """Set and remove credentials of one user. ApiError, BadArgument."""
    user = entities[0]
    if len(entities) > 1 or user.kind.plural != "users" or user.name is None:
        raise BadArgument("SCRAM credentials belong to one user; give --user NAME")
    others = [key for key in (*changes.added, *changes.deleted) if key not in MECHANISMS]
    if others:
        raise BadArgument(f"SCRAM credentials are changed alone; change {', '.join(others)} with another command")
    upsertions = [_upsertion(user.name, key, value) for key, value in changes.added.items()]
    deletions = [pb.ScramCredentialDeletion(name=user.name, mechanism=MECHANISMS[key]) for key in changes.deleted]
    request = pb.AlterUserScramCredentialsRequest(upsertions=upsertions, deletions=deletions)
    client.call(pb.AlterUserScramCredentialsResponse, request)
    out.lines([updated_line(user)])
    out.result({"updated": {"type": user.kind.singular, "name": user.name}})


def _upsertion(user: str, key: str, text: str) -> pb.ScramCredentialUpsertion:
    """Return the request for `iterations=8192,password=secret`. BadArgument."""
    given: dict[str, str] = {}
    head, found, password = text.partition("password=")
    if found:
        given["password"] = password
    for item in head.rstrip(",").split(",") if head.rstrip(",") else ():
        name, _, value = item.strip().partition("=")
        given[name] = value
    iterations = given.get("iterations", str(DEFAULT_ITERATIONS))
    if (
        not given.get("password")
        or given.keys() - {"iterations", "password"}
        or not iterations.isdecimal()
        or len(iterations) > 9
    ):
        raise BadArgument(
            f"{key} needs [iterations=NUMBER,password=PASSWORD]; the default number of iterations is {DEFAULT_ITERATIONS}"
        )
    return scram_credential(user, MECHANISMS[key], given["password"], int(iterations))


def find(client: AdminClient, entities: Sequence[Entity]) -> list[Credential]:
    """Return the credentials of the user that the command names, or of all users; none for other entities."""
    user = entities[0]
    if len(entities) > 1 or user.kind.plural != "users" or (user.name is None and not user.is_any):
        return []
    request = pb.DescribeUserScramCredentialsRequest()
    if user.name is not None:
        request.users.values.add(name=user.name)
    response = answer_of(lambda: client.call(pb.DescribeUserScramCredentialsResponse, request))
    results = [result for result in response.results if result.error_code != ErrorCode.RESOURCE_NOT_FOUND]
    raise_first_error(results)
    return [
        Credential(result.user, _NAMES.get(info.mechanism, f"UNKNOWN({info.mechanism})"), info.iterations)
        for result in results
        for info in result.credential_infos
    ]


def lines(credentials: Sequence[Credential]) -> list[str]:
    """Return one line for each user."""
    mechanisms: dict[str, list[str]] = {}
    for credential in credentials:
        mechanisms.setdefault(credential.user, []).append(f"{credential.mechanism}=iterations={credential.iterations}")
    return [f"SCRAM credential configs for user-principal '{user}' are {', '.join(each)}" for user, each in mechanisms.items()]
