"""SCRAM credentials from passwords, salted before they are sent (RFC 5802, KIP-554)."""

from __future__ import annotations

import hashlib
import secrets

from kraftlab.access.sasl.scram import HASHES
from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.metadata.scram import ScramMechanism

DEFAULT_ITERATIONS = 4096
MAX_ITERATIONS = 16384
SALT_BYTES = 20


def scram_credential(
    user: str, mechanism: ScramMechanism, password: str, iterations: int = DEFAULT_ITERATIONS
) -> pb.ScramCredentialUpsertion:
    """Return a credential to send: the password salted with random bytes. The password itself is not sent. Nodes accept 4096 to
    16384 iterations, and refuse other numbers.
    """
    salt = secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, min(max(1, iterations), MAX_ITERATIONS))
    return pb.ScramCredentialUpsertion(name=user, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted)
