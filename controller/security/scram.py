"""SCRAM credentials of users (KIP-554, RFC 5802): AlterUserScramCredentials, DescribeUserScramCredentials.

A client salts the password and sends the result; only the keys that check a login are kept. All changes of one user are done
or refused together, and users are independent of each other.
"""

from __future__ import annotations

from collections import Counter

from kraftlab.access.refusals import set_error
from kraftlab.access.sasl.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, keys
from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.records import AnyRecord, RemoveUserScramCredential, UserScramCredential
from kraftlab.metadata.scram import ScramMechanism

from ..engine.state import Context, ControllerState, Outcome, check_record_count

NAME_LENGTH_MAX = 32767
SALT_BYTES_MAX = 1024

CredentialChange = admin_pb2.ScramCredentialDeletion | admin_pb2.ScramCredentialUpsertion


def alter(
    state: ControllerState, request: admin_pb2.AlterUserScramCredentialsRequest, context: Context
) -> Outcome[admin_pb2.AlterUserScramCredentialsResponse]:
    """Set and remove credentials. ApiError POLICY_VIOLATION for more records than a batch holds."""
    records: dict[str, list[AnyRecord]] = {}
    errors: dict[str, ApiError] = {}
    entries: list[CredentialChange] = [*request.deletions, *request.upsertions]
    named = Counter((entry.name, entry.mechanism) for entry in entries)
    for entry in entries:
        of_user = records.setdefault(entry.name, [])
        try:
            _check_entry(entry)
            if named[entry.name, entry.mechanism] > 1:
                raise ApiError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
            if isinstance(entry, admin_pb2.ScramCredentialUpsertion):
                of_user.append(_credential(entry))
            else:
                of_user.append(_removal(state.image, entry))
        except ApiError as error:
            errors.setdefault(entry.name, error)
    response = admin_pb2.AlterUserScramCredentialsResponse()
    for user in records:
        result = response.results.add(user=user)
        if user in errors:
            set_error(result, errors[user])
    made = [record for user, of_user in records.items() if user not in errors for record in of_user]
    check_record_count(made)
    return Outcome(made, response)


def _check_entry(entry: CredentialChange) -> None:
    if entry.mechanism not in set(ScramMechanism):
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if not entry.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(entry.name) > NAME_LENGTH_MAX:
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username has {len(entry.name)} characters; {NAME_LENGTH_MAX} are allowed"
        )


def _credential(entry: admin_pb2.ScramCredentialUpsertion) -> UserScramCredential:
    """The record. ApiError UNACCEPTABLE_CREDENTIAL."""
    if entry.iterations < ITERATIONS_MIN:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if entry.iterations > ITERATIONS_MAX:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not entry.salt or not entry.salted_password:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty")
    if max(len(entry.salt), len(entry.salted_password)) > SALT_BYTES_MAX:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Salt and salted password have at most {SALT_BYTES_MAX} bytes")
    stored_key, server_key = keys(HASHES[ScramMechanism(entry.mechanism)], entry.salted_password)
    return UserScramCredential(0, entry.name, entry.mechanism, entry.salt, stored_key, server_key, entry.iterations)


def _removal(image: MetadataImage, entry: admin_pb2.ScramCredentialDeletion) -> RemoveUserScramCredential:
    """The record. ApiError RESOURCE_NOT_FOUND."""
    if (entry.name, entry.mechanism) not in image.scram:
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return RemoveUserScramCredential(0, entry.name, entry.mechanism)


def describe(
    state: ControllerState, request: admin_pb2.DescribeUserScramCredentialsRequest
) -> admin_pb2.DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of the named users, or of all users."""
    credentials = state.image.scram
    named = Counter(user.name for user in request.users.values) or Counter({name: 1 for name, _ in sorted(credentials)})
    response = admin_pb2.DescribeUserScramCredentialsResponse(header=admin_pb2.ResponseHeader(error_message=""))
    for user, times in named.items():
        result = response.results.add(user=user, error_message="")
        infos = [
            (mechanism, credential.iterations)
            for mechanism in ScramMechanism
            if (credential := credentials.get((user, mechanism))) is not None
        ]
        if times > 1:
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            set_error(result, ApiError(ErrorCode.DUPLICATE_RESOURCE, text))
        elif not infos:
            text = f"Attempt to describe a user credential that does not exist: {user}"
            set_error(result, ApiError(ErrorCode.RESOURCE_NOT_FOUND, text))
        else:
            for mechanism, iterations in infos:
                result.credential_infos.add(mechanism=mechanism, iterations=iterations)
    return response
