"""SCRAM credentials of a new cluster (`storage format --add-scram`, KIP-900): users that can log in from the first second.

Formatting writes them beside meta.properties. They count once: the first active controller that finds its log empty makes records
of its own ones. Passwords are not kept, and no error shows one. The language is that of Kafka:

    SCRAM-SHA-256=[name=alice,password=…]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt="BASE64",saltedpassword="BASE64"]
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kraftlab.access.sasl.mechanisms import SCRAM_SHA_256, SCRAM_SHA_512
from kraftlab.access.sasl.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, keys
from kraftlab.metadata.records import UserScramCredential
from kraftlab.metadata.scram import ScramMechanism

from .errors import ConfigError
from .json_files import BadJson, read_json
from .meta_properties import write_durably

FILE_NAME = "bootstrap.scram"
SALT_BYTES = 20
_MECHANISMS = {SCRAM_SHA_256: ScramMechanism.SCRAM_SHA_256, SCRAM_SHA_512: ScramMechanism.SCRAM_SHA_512}


def parse(arguments: Iterable[str]) -> list[UserScramCredential]:
    """Return the credentials that the arguments of --add-scram describe. ConfigError, most with Kafka's texts."""
    return [_parsed(argument.strip()) for argument in arguments]


def credential(
    user: str, mechanism: ScramMechanism, password: str, iterations: int = ITERATIONS_MIN, salt: bytes | None = None
) -> UserScramCredential:
    """Return the credential that checks a password, with a random salt without another one."""
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    return _salted(user, mechanism, hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations), salt, iterations)


def write(directory: Path, credentials: Iterable[UserScramCredential]) -> None:
    """Write the credentials durably into a metadata directory. OSError."""
    write_durably(directory / FILE_NAME, msgspec.json.encode(list(credentials)))


def read(directory: Path) -> tuple[UserScramCredential, ...]:
    """Return the credentials that the directory was formatted with. ConfigError if the file cannot be read."""
    path = directory / FILE_NAME
    try:
        return read_json(path, tuple[UserScramCredential, ...])
    except FileNotFoundError:
        return ()
    except BadJson:
        raise ConfigError(f"{path} is damaged; format this directory again") from None  # its content is secret


def _parsed(argument: str) -> UserScramCredential:
    name, equals, text = argument.partition("=")
    if not equals:
        raise ConfigError(f"Failed to find equals sign in SCRAM argument '{argument}'")
    if name not in _MECHANISMS:
        raise ConfigError(f"The add-scram mechanism {name} is not supported.")
    if not text.startswith("["):
        raise ConfigError("Expected configuration string to start with [")
    if not text.endswith("]"):
        raise ConfigError("Expected configuration string to end with ]")
    return _of(_MECHANISMS[name], _components(text[1:-1]))


def _components(text: str) -> dict[str, str]:
    components = {}
    for number, part in enumerate(text.split(","), 1):
        key, equals, value = part.partition("=")
        if not equals:
            # Kafka shows the component, which can be the end of a password.
            raise ConfigError(f"No equals sign found in SCRAM component {number}; a password cannot have a comma")
        is_quoted = len(value) >= 2 and value[0] == value[-1] == '"'
        components[key] = value[1:-1] if is_quoted else value
    return components


def _of(mechanism: ScramMechanism, components: dict[str, str]) -> UserScramCredential:
    name = components.pop("name", None)
    if name is None:
        raise ConfigError("You must supply 'name' to add-scram")
    salt = _decoded("salt", components.pop("salt", None))
    iterations = _number(components.pop("iterations", str(ITERATIONS_MIN)))
    password, salted = components.pop("password", None), _decoded("saltedPassword", components.pop("saltedpassword", None))
    if password is None and salted is None:
        raise ConfigError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if password is None and salt is None:
        raise ConfigError("You must supply 'salt' with 'saltedpassword' to add-scram")
    if components:
        raise ConfigError(f"Unknown SCRAM configurations: {', '.join(sorted(components))}")
    for bound, is_outside, sign in (
        (ITERATIONS_MIN, iterations < ITERATIONS_MIN, ">="),
        (ITERATIONS_MAX, iterations > ITERATIONS_MAX, "<="),
    ):
        if is_outside:
            raise ConfigError(f"The 'iterations' value must be {sign} {bound} for add-scram using {mechanism.name}")
    for key, value in (("name", name), ("salt", salt), ("password", password), ("saltedpassword", salted)):
        if value is not None and not value:
            raise ConfigError(f"The '{key}' of add-scram is empty; give it a value")
    if password is not None:
        return credential(name, mechanism, password, iterations, salt)
    assert salt is not None and salted is not None, "checked above"
    return _salted(name, mechanism, salted, salt, iterations)


def _salted(user: str, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> UserScramCredential:
    stored_key, server_key = keys(HASHES[mechanism], salted)
    return UserScramCredential(0, user, mechanism, salt, stored_key, server_key, iterations)


def _decoded(key: str, text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"Failed to decode given {key}; expected base64") from None


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 10:
        raise ConfigError(f"Failed to parse iterations count: {text}")
    return int(text)
