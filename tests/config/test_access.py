"""Access in server.properties: authorizer, super users, users of the gRPC listener."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlab.access.authorizer import AccessSettings
from kraftlab.config.errors import ConfigError
from kraftlab.config.models import ControllerConfig, load_controller

BASE = """process.roles=controller
node.id=3000
controller.quorum.voters=3000@127.0.0.1:19093
listeners=CONTROLLER://127.0.0.1:19093,GRPC://127.0.0.1:19092
metadata.log.dir=/tmp/metadata
"""
AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"


def load(directory: Path, more: str) -> ControllerConfig:
    path = directory / "server.properties"
    path.write_text(BASE + more)
    return load_controller(path)


def test_without_an_authorizer_access_is_disabled(tmp_path: Path) -> None:
    assert load(tmp_path, "super.users=User:admin\n").access == AccessSettings(super_users=frozenset({"User:admin"}))


def test_kafkas_authorizer_switches_the_rules_on(tmp_path: Path) -> None:
    more = AUTHORIZER + "super.users=User:admin;User:ANONYMOUS\nallow.everyone.if.no.acl.found=true\n"
    assert load(tmp_path, more).access == AccessSettings(True, frozenset({"User:admin", "User:ANONYMOUS"}), True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("authorizer.class.name=com.example.Mine", "com.example.Mine: the only authorizer here is org.apache.kafka"),
        ("super.users=admin", "super.users=admin: 'admin' is not Type:name"),
        ("allow.everyone.if.no.acl.found=maybe", "maybe for configuration allow.everyone.if.no.acl.found"),
        ("listener.name.grpc.users=alice", "listener.name.grpc.users: entry 1 is not NAME:PASSWORD"),
    ],
)
def test_the_faulty_value_is_named(tmp_path: Path, line: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(tmp_path, line + "\n")


def test_users_authenticate_and_their_passwords_are_never_shown(tmp_path: Path) -> None:
    config = load(tmp_path, "listener.name.grpc.users=alice:alice-secret\n")
    assert config.users.principal("alice", "alice-secret") == "User:alice"
    assert config.static("listener.name.grpc.users") is None
    assert "alice-secret" not in repr(config)


def test_a_mistake_among_the_users_shows_no_password(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, "listener.name.grpc.users=alice:alice-secret,alice:other-secret\n")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("key", ["listener.name.grpc.user", "my.own.password"])
def test_a_misspelt_secret_is_not_shown(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=f"sets {key}, an unknown key") as refused:
        load(tmp_path, f"{key}=alice:alice-secret\n")
    assert "alice-secret" not in str(refused.value)
