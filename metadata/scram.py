"""SCRAM credentials of users (RFC 5802, KIP-554): their part of the image and their records.

A credential checks a password without revealing it: salt, stored key, server key, number of iterations. There is one per user
and mechanism.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping

import immutables
import msgspec

from .maps import newest
from .records import RemoveUserScramCredential, UserScramCredential
from .replay_error import ReplayError


class ScramMechanism(enum.IntEnum):
    """The protocol's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


ScramKey = tuple[str, int]
"""(user name, mechanism)."""


class ScramCredential(msgspec.Struct, frozen=True):
    """Only the number of iterations is ever shown."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


ScramImage = immutables.Map[ScramKey, ScramCredential]


class ScramDelta:
    """Credentials while records are replayed on `image`."""

    def __init__(self, image: ScramImage) -> None:
        self.image = image
        self.changed: dict[ScramKey, ScramCredential | None] = {}

    def put(self, record: UserScramCredential) -> None:
        credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
        self.changed[record.name, record.mechanism] = credential

    def remove(self, record: RemoveUserScramCredential) -> None:
        """ReplayError if the user has no credential of that mechanism."""
        key = (record.name, record.mechanism)
        if newest(self.image, self.changed, key) is None:
            raise ReplayError(f"user {record.name} has no credential of mechanism {record.mechanism}")
        self.changed[key] = None


def scram_records(credentials: Mapping[ScramKey, ScramCredential]) -> Iterator[UserScramCredential]:
    """The snapshot's records, sorted by user and mechanism."""
    for (name, mechanism), credential in sorted(credentials.items(), key=lambda entry: entry[0]):
        yield UserScramCredential(
            0, name, mechanism, credential.salt, credential.stored_key, credential.server_key, credential.iterations
        )
