"""No refusal of a properties file quotes a secret, however the line is wrong."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kraftlab.config.errors import ConfigError
from kraftlab.config.models import load_any, load_broker
from kraftlab.config.private_files import warn_of_readable_secrets
from kraftlab.config.secrets import is_secret_property, looks_secret, shown
from kraftlab.config.topic_configs import BROKER_KEYS

MARKER = "marker-password-4Kd"
SECRET = (
    "listener.name.grpc.users",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.truststore.password",
    "listener.name.external.ssl.keystore.password",
    "listener.name.external.scram-sha-256.sasl.jaas.config",
    "sasl.jaas.config",
    "sasl.oauthbearer.client.credentials.client.secret",
    "delegation.token.secret.key",
    "password.encoder.secret",
)


@pytest.mark.parametrize("key", [*SECRET, "my.own.key", "listener.name.grpc.user", "ssl.keystore.pasword"])
@pytest.mark.parametrize(
    "lines",
    [
        "{key}={marker}",
        "{key}={marker}\n{key}=other",
        "{key}={marker}\nnode.id=1\nnode.id=2",
        "{key}=alice:{marker},alice:{marker}",
        "{key}={marker}\\uXYZW",
    ],
)
def test_a_refused_line_is_named_without_its_value(broker_file, key: str, lines: str) -> None:
    path = broker_file({})
    with path.open("a") as file:
        file.write("\n" + lines.format(key=key, marker=MARKER) + "\n")
    for load in (load_any, load_broker):
        with pytest.raises(ConfigError) as refused:
            load(path)
        assert MARKER not in str(refused.value)


def test_the_password_of_a_user_is_kept_out_of_what_nodes_tell_each_other(broker_file) -> None:
    config = load_broker(broker_file({"listener.name.grpc.users": f"alice:{MARKER}"}))
    assert config.users.principal("alice", MARKER) == "User:alice"
    assert MARKER not in repr(config) and MARKER not in str(config.values)


@pytest.mark.parametrize("key", SECRET)
def test_secret_keys_are_known_by_one_rule(key: str) -> None:
    assert is_secret_property(key) and looks_secret(key)
    assert shown(key, MARKER) == "(hidden)"


def test_no_other_key_is_hidden() -> None:
    for key, definition in BROKER_KEYS.items():
        assert looks_secret(key) == definition.is_sensitive, key
        assert is_secret_property(key) == definition.is_sensitive, key
    assert shown("log.retention.ms", "5") == "5"


def test_a_node_warns_of_secrets_that_everybody_can_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, log = tmp_path / "server.properties", tmp_path / "metadata" / "__cluster_metadata-0" / "0.log"
    log.parent.mkdir(parents=True)
    for path in (config, log):
        path.touch()
    monkeypatch.setattr("kraftlab.config.private_files.is_open_to_all", lambda path: path == log)
    with caplog.at_level(logging.WARNING):
        warn_of_readable_secrets(str(config), tmp_path / "metadata")
        warn_of_readable_secrets(str(tmp_path / "absent"), tmp_path / "absent")
    assert list(caplog.messages) == [
        f"{log} can hold passwords or keys, and every user of this machine can read it; run: chmod -R go= {tmp_path / 'metadata'}"
    ]
