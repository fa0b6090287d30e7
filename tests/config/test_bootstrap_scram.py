"""SCRAM credentials that a new cluster is formatted with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraftlab.access.sasl.scram import password_fits
from kraftlab.cli import main
from kraftlab.config import bootstrap_scram, storage
from kraftlab.config.errors import ConfigError
from kraftlab.config.models import load_broker, load_controller
from kraftlab.metadata.records import UserScramCredential
from kraftlab.metadata.scram import ScramCredential, ScramMechanism

RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "format-scram.json").read_text())["steps"]
OTHER_TEXTS = {
    "No equals sign found in SCRAM component: b": "No equals sign found in SCRAM component 3; a password cannot have a comma",
    'Exception in thread "main" java.lang.IllegalArgumentException: Empty key': (
        "The 'password' of add-scram is empty; give it a value"
    ),
}
"""Texts of ours instead of those that Kafka prints: no end of a password, no exception of Java."""
ALICE = "SCRAM-SHA-256=[name=alice,password=alice-secret]"


def as_credential(record: UserScramCredential) -> ScramCredential:
    return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)


@pytest.mark.parametrize("step", RECORDED, ids=lambda step: step["argument"])
def test_arguments_are_taken_and_refused_as_recorded(step: dict[str, Any]) -> None:
    if step["exit_status"]:
        (text,) = step["stderr"]
        with pytest.raises(ConfigError) as raised:
            bootstrap_scram.parse([step["argument"]])
        assert str(raised.value) == OTHER_TEXTS.get(text, text)
        return
    (found,) = bootstrap_scram.parse([step["argument"]])
    kafka = step["stdout"][0]
    assert f"UserScramCredentialRecord(name='{found.name}', mechanism={int(found.mechanism)}, " in kafka
    assert f"iterations={found.iterations})" in kafka
    if "saltedpassword" in step["argument"]:  # without it, the salt is random
        signed = [[byte - 256 if byte > 127 else byte for byte in key] for key in (found.stored_key, found.server_key)]
        assert f"storedKey={signed[0]}, serverKey={signed[1]}" in kafka
    else:
        assert password_fits(as_credential(found), ScramMechanism(found.mechanism), "alice-secret")


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("SCRAM-SHA-256=[name=alice,password=marker", "Expected configuration string to end with ]"),
        ("SCRAM-SHA-256=[name=,password=marker]", "The 'name' of add-scram is empty"),
        ("SCRAM-SHA-256=[name=alice,salt=,saltedpassword=bWFya2Vy]", "The 'salt' of add-scram is empty"),
        ("SCRAM-SHA-256=[name=alice,salt=*marker,saltedpassword=YCE=]", "Failed to decode given salt"),
        ("SCRAM-SHA-256=[name=alice,salt=YCE=,saltedpassword=*marker]", "Failed to decode given saltedPassword"),
        ("SCRAM-SHA-256=[name=alice,iterations=many,password=marker]", "Failed to parse iterations count: many"),
    ],
)
def test_a_refusal_shows_no_secret(argument: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason.replace("(", r"\(")) as raised:
        bootstrap_scram.parse([argument])
    assert "marker" not in str(raised.value)


def test_credentials_are_kept_beside_the_log_of_a_controller(controller_file, tmp_path: Path) -> None:
    config = load_controller(controller_file())
    credentials = bootstrap_scram.parse([ALICE])
    storage.format(config, "c", credentials=credentials)
    assert bootstrap_scram.read(config.metadata_log_dir) == tuple(credentials)
    path = config.metadata_log_dir / bootstrap_scram.FILE_NAME
    assert path.stat().st_mode & 0o077 == 0
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ConfigError, match="is damaged; format this directory again"):
        bootstrap_scram.read(config.metadata_log_dir)


def test_credentials_that_no_cluster_would_get_are_refused(broker_file, controller_file) -> None:
    credentials = bootstrap_scram.parse([ALICE])
    with pytest.raises(ConfigError, match="users come from the controllers"):
        storage.format(load_broker(broker_file()), "c", credentials=credentials)
    levels = {"metadata.version": 10}
    with pytest.raises(ConfigError, match=r"SCRAM is only supported in metadata.version 3.5-IV2 or later."):
        storage.format(load_controller(controller_file()), "c", levels=levels, credentials=credentials)


def test_users_come_from_a_file_and_nothing_shows_their_secrets(
    controller_file, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = tmp_path / "users.scram"
    users.write_text(f"{ALICE}\n\nSCRAM-SHA-512=[name=bob,iterations=8192,password=bob-secret]\n")
    path = controller_file()
    assert main.run(["storage", "format", "-t", "c", "-c", path, "--add-scram-file", str(users)]) == 0
    found = bootstrap_scram.read(load_controller(path).metadata_log_dir)
    assert [(each.name, each.mechanism, each.iterations) for each in found] == [("alice", 1, 4096), ("bob", 2, 8192)]
    printed = capsys.readouterr()
    assert "secret" not in printed.out + printed.err and "alice" not in printed.out + printed.err
