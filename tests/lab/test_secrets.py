"""Secrets of a cluster: who can read the files, and that nothing shows them.

Markers stand for secrets: a password of the configuration, a SCRAM password, and the salt and keys that are made of it. Then
everything that a person could look at is searched for them.
"""

from __future__ import annotations

import base64
import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlab.cli import main
from kraftlab.config.private_files import is_open_to_all
from kraftlab.lab import LocalCluster
from kraftlab.metadata.records import UserScramCredential
from kraftlab.pipeline.framing import Frame
from kraftlab.pipeline.own_log.reader import read_frames
from kraftlab.pipeline.own_log.records import decode_metadata

pytestmark = pytest.mark.cluster

ADMIN, SCRAM, KEYSTORE = "marker-admin-7Zq", "marker-scram-8Yr", "marker-keystore-9Xs"
OVERRIDES = {
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:admin",
    "listener.name.grpc.users": f"admin:{ADMIN}",
}
LISTENER_KEY = "listener.name.external.ssl.keystore.password"
MAY_HOLD = ("server.properties", "cluster.json")
"""Files with the password of the configuration. Keys are in the metadata logs and their snapshots."""


class Lab:
    """A running cluster, and everything that its commands have printed."""

    def __init__(self, cluster: LocalCluster, capture: pytest.CaptureFixture[str]) -> None:
        self.cluster, self._capture = cluster, capture
        self.printed = ""

    def run(self, *words: str, code: int = 0) -> str:
        self._capture.readouterr()
        assert main.run(list(words)) == code, self._capture.readouterr()
        printed = self._capture.readouterr()
        self.printed += printed.out + printed.err
        return printed.out

    def ask(self, *words: str, code: int = 0) -> str:
        """Run a command as the super user."""
        return self.run(*words, "--data", str(self.cluster.directory), "--user", "admin", code=code)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("secrets") / "lab"
    mask = os.umask(0o022)
    try:
        overrides = OVERRIDES | {"kraftlab.trace.file": str(directory / "trace.ndjson")}
        with LocalCluster(directory, 1, 1, 2, overrides=overrides, allow_chaos=True) as running:
            yield running
    finally:
        os.umask(mask)


@pytest.fixture
def lab(cluster: LocalCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("KRAFTLAB_PASSWORD", ADMIN)
    return Lab(cluster, capsys)


def credential_in(path: Path) -> UserScramCredential:
    """The newest credential in a segment of the metadata log."""
    data = path.read_bytes()
    frames = read_frames(lambda at, size: data[at : at + size], len(data), is_snapshot=False)
    records = [
        record
        for frame in frames
        if isinstance(frame, Frame) and not frame.is_control
        for record in decode_metadata(frame.data[48:], frame.base_offset, frame.record_count)
    ]
    return [record for record in records if isinstance(record, UserScramCredential)][-1]


def forms_of(secret: bytes) -> Iterator[bytes]:
    yield secret
    yield base64.b64encode(secret).rstrip(b"=")
    yield base64.urlsafe_b64encode(secret).rstrip(b"=")
    yield secret.hex().encode()
    yield repr(secret)[2:-1].encode()


def found_in(text: bytes, secrets: dict[str, bytes]) -> set[str]:
    return {name for name, secret in secrets.items() if any(form in text for form in forms_of(secret))}


def test_nothing_that_a_person_looks_at_shows_a_secret(lab: Lab) -> None:
    directory, controller = lab.cluster.directory, lab.cluster.node(3000)
    metadata = str(lab.cluster.metadata_dir(3000))
    password = f"SCRAM-SHA-256=[iterations=4096,password={SCRAM}]"
    servers = ("--bootstrap-server", str(controller.grpc))
    admin = directory.parent / "admin.properties"
    admin.write_text(f"username=admin\npassword={ADMIN}\n")
    configs = ("configs", *servers, "--command-config", str(admin))
    lab.run(*configs, "--alter", "--entity-type", "users", "--entity-name", "alice", "--add-config", password)
    for key in (LISTENER_KEY, "ssl.keystore.password", "sasl.jaas.config", "my.own.key"):
        broker = ("--entity-type", "brokers", "--entity-name", "0", "--add-config", f"{key}={KEYSTORE}")
        lab.run(*configs, "--alter", *broker, code=1)
    lab.ask("topics", "--create", "--topic", "t", "--partitions", "1")
    lab.ask("snapshot", "create", "--node", "3000")
    for kind, name in (("users", "alice"), ("brokers", "0"), ("topics", "t")):
        all_keys = () if kind == "users" else ("--all",)
        lab.run(*configs, "--describe", "--entity-type", kind, "--entity-name", name, *all_keys)
    for words in (
        ("metadata", "at", "--offset", "12", "--metadata-dir", metadata),
        ("metadata", "diff", "--from", "1", "--to", "newest", "--records", "--metadata-dir", metadata),
        ("metadata-shell", "--metadata-dir", metadata, "tree", "/"),
        ("storage", "info", "--config", str(directory / controller.name / "server.properties")),
    ):
        lab.run(*words)
    partition = Path(metadata, "__cluster_metadata-0")
    segments, snapshots = sorted(partition.glob("*.log")), sorted(partition.glob("*.checkpoint"))
    assert snapshots
    for path in (*segments, *snapshots):
        for decoder in ((), ("--json",)):
            lab.run("dump-log", "--files", str(path), "--cluster-metadata-decoder", *decoder)
    assert "USER_SCRAM_CREDENTIAL_RECORD" in lab.printed and "alice" in lab.printed
    credential = credential_in(segments[0])
    passwords = {"admin": ADMIN.encode(), "scram": SCRAM.encode(), "keystore": KEYSTORE.encode()}
    keys = {"salt": credential.salt, "stored": credential.stored_key, "server": credential.server_key}
    assert found_in(lab.printed.encode(), passwords | keys) == set()
    assert found_in(repr(credential).encode(), keys) == set()
    for node in lab.cluster.plan.nodes:
        for name in ("cmdline", "comm"):
            assert found_in(Path(f"/proc/{lab.cluster.pid(node.node_id)}/{name}").read_bytes(), passwords | keys) == set()
    holders = {}
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # the cluster is running
            if path.is_file():
                holders[path] = found_in(path.read_bytes(), passwords | keys)
    assert (directory / "trace.ndjson").stat().st_size > 0
    for path, found in holders.items():
        is_log = path.parent.name == "__cluster_metadata-0"
        assert found <= ({*keys} if is_log else {"admin"} if path.name in MAY_HOLD else set()), path
    assert holders[segments[0]] == {*keys} and holders[directory / "cluster.json"] == {"admin"}


def test_only_the_user_of_the_nodes_can_read_their_files(lab: Lab) -> None:
    """The user's umask would let everybody read new files."""
    lab.ask("topics", "--create", "--if-not-exists", "--topic", "t2", "--partitions", "1")
    paths = [lab.cluster.directory, *lab.cluster.directory.rglob("*")]
    names = {path.name for path in paths}
    assert {"server.properties", "cluster.json", "logs", "trace.ndjson", "meta.properties", "__cluster_metadata-0"} <= names
    modes: dict[Path, os.stat_result] = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # the cluster is running
            modes[path] = path.lstat()
    open_to_others = [mode for mode in modes.values() if stat.S_IMODE(mode.st_mode) & 0o077 and not stat.S_ISSOCK(mode.st_mode)]
    assert [mode for mode in open_to_others if mode.st_size or not stat.S_ISREG(mode.st_mode)] == []


def test_modes_that_a_person_has_set_stay(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "lab", 1, 1, 1)
    cluster.close()
    path = tmp_path / "lab" / "broker-0" / "server.properties"
    path.chmod(0o640)
    path.parent.chmod(0o750)
    LocalCluster(tmp_path / "lab", overrides={"num.partitions": "3"}).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640 and stat.S_IMODE(path.parent.stat().st_mode) == 0o750
    assert "num.partitions=3" in path.read_text()


def test_a_file_that_every_user_can_read_is_told_from_one_behind_a_closed_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = {"/a": 0o755, "/a/open": 0o644, "/a/own": 0o640, "/a/shut": 0o700, "/a/shut/f": 0o644, "/": 0o755}
    monkeypatch.setattr("os.stat", lambda path: os.stat_result((modes[str(path)], *[0] * 9)))
    found = {path for path in modes if is_open_to_all(Path(path))}
    assert found == {"/", "/a", "/a/open"}
