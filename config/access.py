"""Access settings of server.properties: authorizer, super users, and the users of the gRPC listener."""

from __future__ import annotations

from collections.abc import Mapping

from kraftlab.access.authorizer import AccessSettings
from kraftlab.access.users import Users, parse_principals, parse_users

from .errors import ConfigError

AUTHORIZER = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
USERS = "listener.name.grpc.users"

AUTHORIZERS = ("org.apache.kafka.metadata.authorizer.StandardAuthorizer", "StandardAuthorizer")
"""Accepted names of the authorizer; Kafka's users know them."""


def access_settings(values: Mapping[str, str], source: str) -> AccessSettings:
    """Parse the authorizer, the super users and the default without ACLs. ConfigError names key, value and the expected form."""
    name = values.get(AUTHORIZER, "").strip()
    if name and name not in AUTHORIZERS:
        raise ConfigError(f"{source}: {AUTHORIZER}={name}: the only authorizer here is {AUTHORIZERS[0]}; write that or remove it")
    try:
        super_users = parse_principals(values.get(SUPER_USERS, ""))
    except ValueError as error:
        raise ConfigError(f"{source}: {SUPER_USERS}={values[SUPER_USERS]}: {error}") from error
    return AccessSettings(bool(name), super_users, values.get(ALLOW_EVERYONE, "").strip().lower() == "true")


def listener_users(values: Mapping[str, str], source: str) -> Users:
    """Parse the users of the gRPC listener. ConfigError names the fault and shows no password."""
    text = values.get(USERS, "")
    try:
        return Users(parse_users(text) if text.strip() else {})
    except ValueError as error:
        raise ConfigError(f"{source}: {USERS}: {error}; expected alice:PASSWORD,bob:PASSWORD") from error
