"""Texts of force-standalone, and its protection against mistakes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest

from kraftlab.cli import main
from kraftlab.cli.quorum.standalone_text import ForcingView, VoterView, done_lines, plan_lines
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.config import meta_properties
from kraftlab.quorum.core import batch
from kraftlab.quorum.core.batch import KRaftVoters, LeaderChange
from kraftlab.quorum.core.types import Voter, VoterSet
from kraftlab.quorum.storage.directory_lock import DirectoryLock
from kraftlab.quorum.storage.file_system import RealFileSystem
from kraftlab.quorum.storage.metadata_store import MetadataStore

VIEW = ForcingView(
    cluster_id="lab",
    controller_id=3000,
    generation=1,
    epoch=8,
    log_start_offset=0,
    log_end_offset=4711,
    high_watermark=4690,
    last_append_ms=1_700_000_000_123,
    given_up=(VoterView(3001, "pMTZEsB7QmCgsDzRHlrVcQ"), VoterView(3002, "AAAAAAAAAAAAAAAAAAAAAA")),
    was_interrupted=False,
    is_static=False,
)


def test_the_plan_lists_kept_and_endangered_offsets() -> None:
    assert plan_lines(VIEW) == [
        "Controller 3000 becomes the only voter of cluster lab, without other voters' records.",
        "",
        "Given up:               3001 (directory id pMTZEsB7QmCgsDzRHlrVcQ), 3002",
        "Committed:              offsets below 4690, for certain",
        "Kept as well:           offsets 4690 to 4710, which become committed, acknowledged or not",
        "May be lost:            records that the others have committed from offset 4711 on",
        "LastWritten:            2023-11-14T22:13:20.123Z",
        "Generation:             0 -> 1",
        "LeaderEpoch:            8",
        "",
    ]
    whole = msgspec.structs.replace(VIEW, high_watermark=4711, given_up=(), was_interrupted=True)
    lines = plan_lines(whole)
    assert lines[0] == "Forcing controller 3000 of cluster lab was interrupted; this finishes it."
    assert lines[2] == "Given up:               not known"
    assert lines[4] == "Kept as well:           nothing"


def test_a_former_observer_gets_a_warning() -> None:
    lines = plan_lines(msgspec.structs.replace(VIEW, is_voter=False))
    assert lines[:9] == plan_lines(VIEW)[:9]
    assert lines[10].startswith("Controller 3000 is not a voter")


def test_static_voters_have_to_leave_the_configuration() -> None:
    assert not any("controller.quorum.voters" in line for line in done_lines(VIEW))
    static = done_lines(msgspec.structs.replace(VIEW, is_static=True))
    assert any("replace controller.quorum.voters by controller.quorum.bootstrap.servers" in line for line in static)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """server.properties of a stopped controller that was one of two voters and has a log."""
    path = tmp_path / "controller.properties"
    path.write_text(
        "process.roles=controller\nnode.id=3000\ncontroller.quorum.bootstrap.servers=127.0.0.1:19093\n"
        f"listeners=CONTROLLER://127.0.0.1:19093,GRPC://127.0.0.1:19094\nmetadata.log.dir={tmp_path}/metadata\n"
    )
    assert main.run(["storage", "format", "-t", "lab", "-c", str(path), "-N"]) == 0
    meta = meta_properties.read(tmp_path / "metadata")
    assert meta is not None
    endpoints = {"CONTROLLER": Endpoint("127.0.0.1", 19093)}
    voters = VoterSet.of(Voter(ReplicaKey(3000 + index, meta.directory_id), endpoints) for index in range(2))
    store = MetadataStore.open(RealFileSystem(), str(tmp_path / "metadata"), "lab", meta.directory_id)
    body = batch.encode_control([LeaderChange(0, 3001, (3000, 3001), (3000, 3001)), KRaftVoters(0, voters)])
    data, _ = batch.encode(
        body,
        base_offset=0,
        epoch=1,
        record_count=2,
        append_time_ms=1_700_000_000_000,
        high_watermark=0,
        previous_crc=0,
        attributes=batch.CONTROL,
    )
    store.log.append(0, 2, data)
    store.log.flush()
    store.close()
    return path


def force(config: Path, *options: str) -> list[str]:
    return ["metadata-quorum", "force-standalone", "--config", str(config), *options]


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_it_is_done_once_the_cluster_id_was_typed(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("lab\n"))
    assert main.run(force(config)) == 0
    said = capsys.readouterr().out
    assert "Kept as well:           offsets 0 to 1, which become committed" in said
    assert "Type the cluster id to continue: Controller 3000 is the only voter of cluster lab, in generation 1.\n" in said
    assert main.run(["storage", "info", "-c", str(config)]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("Found quorum: "))
    assert line.startswith("Found quorum: {epoch=2, generation=1, kraft.version=1, log.end=6, log.epoch=2, log.start=0, ")
    assert "voters=3000@127.0.0.1:19093:" in line


@pytest.mark.parametrize(
    ("options", "typed", "code", "said"),
    [
        (["--dry-run"], "", 0, "DRY RUN: nothing was changed."),
        ([], "", 1, "not confirmed, nothing was changed; in scripts use --confirm CLUSTER-ID"),
        ([], "yes\n", 1, "is not the id of this cluster, lab; nothing was changed"),
        (["--confirm", "other"], "", 1, "'other' is not the id of this cluster, lab; nothing was changed"),
        (["--json"], "lab\n", 1, "not confirmed"),
    ],
)
def test_without_the_cluster_id_nothing_is_changed(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    typed: str,
    code: int,
    said: str,
) -> None:
    before = contents(config.parent)
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert main.run(force(config, *options)) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert contents(config.parent) == before


def test_a_running_controller_is_not_forced(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with DirectoryLock(str(config.parent / "metadata")):
        assert main.run(force(config, "--confirm", "lab")) == 1
    assert "is in use by process" in capsys.readouterr().err


def test_a_controller_without_a_log_is_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (config.parent / "metadata" / "__cluster_metadata-0").glob("*.log"):
        path.unlink()
    assert main.run(force(config, "--confirm", "lab")) == 1
    assert "holds no log: nothing could be kept" in capsys.readouterr().err


def test_programs_get_the_plan_as_json(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main.run(force(config, "--confirm", "lab", "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["dry_run"] is False
    assert (document["plan"]["generation"], document["plan"]["log_end_offset"]) == (1, 2)
    assert [voter["controller_id"] for voter in document["plan"]["given_up"]] == [3001]


def test_a_replaced_disk_under_a_voters_id_is_not_a_voter(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meta = meta_properties.read(config.parent / "metadata")
    assert meta is not None
    store = MetadataStore.open(RealFileSystem(), str(config.parent / "metadata"), "lab", meta.directory_id)
    [header] = store.log.batches()
    endpoints = {"CONTROLLER": Endpoint("127.0.0.1", 19093)}
    former = VoterSet.of(
        [Voter(ReplicaKey(3000, bytes([7]) * 16), endpoints), Voter(ReplicaKey(3001, bytes([8]) * 16), endpoints)]
    )
    data, _ = batch.encode(
        batch.encode_control([KRaftVoters(0, former)]),
        base_offset=header.end_offset,
        epoch=1,
        record_count=1,
        append_time_ms=1_700_000_000_000,
        high_watermark=0,
        previous_crc=header.crc,
        attributes=batch.CONTROL,
    )
    store.log.append(header.end_offset, header.end_offset + 1, data)
    store.log.flush()
    store.close()
    assert main.run(force(config, "--dry-run")) == 0
    said = capsys.readouterr().out
    assert "Given up:               3000 (directory id BwcHBwcHBwcHBwcHBwcHBw), 3001" in said
    assert "Controller 3000 is not a voter" in said
