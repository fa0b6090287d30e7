"""Looking back: `metadata`, `metadata-shell` and `dump-log` on a real cluster's files, whole and damaged, and on live nodes."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraftlab.cli import main
from kraftlab.cli.metadata.shell_command import completer
from kraftlab.cli.metadata.shell_tree import COMMANDS, Shell, ShellError
from kraftlab.cli.metadata.sources import DirectorySource, parse_moment, parse_point, parse_time
from kraftlab.cli.output import CommandFailed
from kraftlab.lab import LocalCluster
from kraftlab.metadata.tree import Directory, Hidden
from kraftlab.node.history import Moment
from kraftlab.quorum.storage.file_system import RealFileReader

from ...helpers.commands import Ran, run_command

SEGMENTS = Path(__file__).parents[3] / "examples" / "capture" / "segments"
SEGMENT = "__cluster_metadata-0/00000000000000000000.log"


class Lab(NamedTuple):
    """A running cluster that has a topic and a user, and a copy of its controller's metadata directory from then."""

    server: str
    copy: Path
    segment: Path


Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def lab(starts_clusters: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("lab")
    with LocalCluster(directory / "cluster", 1, 2, 1) as running:
        server = str(running.node(0).grpc)
        assert (
            main.run(["topics", "--bootstrap-server", server, "--create", "--topic", "orders", "--replica-assignment", "0:1"])
            == 0
        )
        scram = ["configs", "--bootstrap-server", server, "--alter", "--entity-type", "users", "--entity-name", "alice"]
        assert main.run([*scram, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=geheim]"]) == 0
        copy = directory / "copy"
        shutil.copytree(directory / "cluster" / "controller-3000" / "metadata", copy)
        yield Lab(server, copy, copy / SEGMENT)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return partial(run_command, capsys)


def offset_of(run: Run, lab: Lab, record_type: str) -> int:
    """Return the offset of the first record of a type."""
    for line in run("dump-log", "--files", lab.segment, "--cluster-metadata-decoder", "--json").lines:
        for record in json.loads(line).get("records", ()):
            if record.get("type") == record_type:
                return int(record["offset"])
    raise AssertionError(record_type)


def test_a_past_image_has_the_state_of_its_offset(run: Run, lab: Lab) -> None:
    created = offset_of(run, lab, "TOPIC_RECORD")
    before = run("metadata", "at", "--offset", created, "--metadata-dir", lab.copy, "topics", "--json")
    after = run("metadata", "at", "--metadata-dir", lab.copy, "topics/byName/orders/0", "--json")
    assert (before.code, before.json["image"]["topics"]["byName"]) == (0, {})
    assert after.json["image"]["topics/byName/orders/0"]["replicas"] == [0, 1]
    assert before.json["is_committed"] is True
    nowhere = run("metadata", "at", "--metadata-dir", lab.copy, "topics/byName/nothing")
    assert nowhere.code == 1
    assert "there is no topics/byName/nothing; in topics/byName there is orders\n" in nowhere.err
    below = run("metadata", "at", "--metadata-dir", lab.copy, "/image/topics/byName/orders/0/isr/1/x")
    assert "there is no topics/byName/orders/0/isr/1; in topics/byName/orders/0/isr there is nothing\n" in below.err
    empty = run("metadata", "at", "--offset", 0, "--metadata-dir", lab.copy, "topics")
    assert (empty.code, empty.out) == (0, f"Metadata of {lab.copy} at offset 0, before anything was appended\n")


def test_an_offset_inside_a_batch_or_after_the_end_is_explained(run: Run, lab: Lab) -> None:
    created = offset_of(run, lab, "TOPIC_RECORD")
    inside = run("metadata", "at", "--offset", created + 1, "--metadata-dir", lab.copy, "topics")
    assert inside.lines[1].startswith(f"EARLIER       offset {created + 1} is inside the batch that begins at {created}; a batch")
    compared = run("metadata", "diff", "--from", created + 1, "--to", created, "--bootstrap-server", lab.server)
    assert [line.split()[0] for line in compared.lines] == ["---", "+++", "EARLIER", "Nothing"]
    beyond = run("metadata", "at", "--offset", 10**9, "--metadata-dir", lab.copy, "topics")
    assert any(line.startswith("EARLIER       the log ends at offset") for line in beyond.lines)


def test_a_difference_lists_additions_with_their_records_without_secrets(run: Run, lab: Lab) -> None:
    created = offset_of(run, lab, "TOPIC_RECORD")
    for source in (("--metadata-dir", lab.copy), ("--bootstrap-server", lab.server)):
        ran = run("metadata", "diff", "--from", created, "--records", *source)
        assert ran.code == 0
        assert any(line.startswith("+ topics/byName/orders/0  replicas=[0,1]") for line in ran.lines)
        assert "+ scram/SCRAM-SHA-256/alice  salt=[hidden] storedKey=[hidden] serverKey=[hidden] iterations=4096" in ran.lines
        assert any("USER_SCRAM_CREDENTIAL_RECORD" in line and '"storedKey":"[hidden]"' in line for line in ran.lines)
    document = run("metadata", "diff", "--from", "newest", "--to", created, "--metadata-dir", lab.copy, "--json").json
    assert {"topics/byName/orders", "topics/byName/orders/0"} <= {change["path"] for change in document["changes"]}
    assert {change["change"] for change in document["changes"] if change["path"].startswith("topics")} == {"removed"}


def test_a_file_that_vanishes_while_a_log_is_cleaned_is_looked_for_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    source = DirectorySource(str(lab.copy))
    end = source.at(Moment()).image.provenance.offset
    whole = list(source.batches(0, end))
    assert whole
    read, vanished = RealFileReader.read, [str(lab.segment)]

    def vanish(files: RealFileReader, path: str) -> bytes:
        if vanished:
            raise FileNotFoundError(vanished.pop())
        return read(files, path)

    monkeypatch.setattr(RealFileReader, "read", vanish)
    assert list(source.batches(0, end)) == whole
    assert not vanished


def test_remembered_answers_are_shown_only_with_all(run: Run, lab: Lab) -> None:
    """Every write of these commands had an id; a change of scram credentials too."""
    source = ("--from", offset_of(run, lab, "TOPIC_RECORD"), "--metadata-dir", lab.copy)
    hidden, shown = run("metadata", "diff", *source), run("metadata", "diff", *source, "--all")
    assert not [line for line in hidden.lines if "requests/" in line]
    assert [line for line in shown.lines if line.startswith("+ requests/")]
    assert hidden.lines[-1] == "Remembered answers to requests differ as well; --all shows them."
    paths = [change["path"] for change in run("metadata", "diff", *source, "--json").json["changes"]]
    assert not [path for path in paths if path.startswith("requests")]


def test_now_is_the_newest_moment(run: Run, lab: Lab) -> None:
    newest = run("metadata", "at", "--metadata-dir", lab.copy, "--json").json["offset"]
    assert run("metadata", "at", "--time", "now", "--metadata-dir", lab.copy, "--json").json["offset"] == newest
    ran = run("metadata", "diff", "--from", "now", "--to", "newest", "--metadata-dir", lab.copy)
    assert (ran.code, ran.lines[-1]) == (0, "Nothing differs.")


def test_an_epoch_is_a_moment_and_its_difference_is_all_that_happened_in_it(run: Run, lab: Lab) -> None:
    for source in (("--metadata-dir", lab.copy), ("--bootstrap-server", lab.server)):
        assert "+ topics/byName/orders  " in run("metadata", "diff", "--from", "epoch:1", "--to", "epoch:1+", *source).out
        assert run("metadata", "diff", "--from", "epoch:1", *source).lines[0].startswith("--- offset 0, before anything")
        assert "+ topics" not in run("metadata", "diff", "--from", "epoch:1+", *source).out
        assert run("metadata", "at", "--offset", "epoch:1", *source, "topics").lines[0].endswith("before anything was appended")
        future = run("metadata", "at", "--offset", "epoch:99", *source)
        assert (future.code, "epoch 99 has no records in" in future.err, "there are epochs 1\n" in future.err) == (1, True, True)
    assert run(
        "metadata-shell", "--metadata-dir", lab.copy, "--offset", "epoch:1+", "cat", "/image/topics/byName/orders/name"
    ).out
    refused = run("metadata", "at", "--offset", "-1", "--metadata-dir", lab.copy)
    assert (refused.code, "-1 is not in the range" in refused.err) == (64, True)


def test_the_history_of_a_partition_and_of_the_quorum_is_told_by_directories_and_nodes(run: Run, lab: Lab) -> None:
    for source in (("--metadata-dir", lab.copy), ("--bootstrap-server", lab.server)):
        ran = run("metadata", "history", "orders-0", *source)
        assert (ran.code, "is created: replicas [0,1], isr [0,1], leader 0" in ran.out) == (0, True)
        (first, *_) = run("metadata", "history", "quorum", *source, "--json").json["changes"]
        assert (first["type"], first["change"][:29]) == ("LeaderChange", "controller 3000 leads epoch 1")
        assert "broker 1 is unfenced" in run("metadata", "history", "broker", "1", *source).out
        wrong = run("metadata", "history", "orders-9", *source)
        assert (wrong.code, "topic orders has no partition 9; it has 0 between offset 0 and" in wrong.err) == (1, True)
    swapped = run("metadata", "history", "orders", "--from", "newest", "--to", 5, "--metadata-dir", lab.copy)
    assert (swapped.code, "swap the two" in swapped.err) == (64, True)


def test_the_same_moment_differs_in_nothing(run: Run, lab: Lab) -> None:
    ran = run("metadata", "diff", "--from", 5, "--to", 5, "--bootstrap-server", lab.server, "--node", 3000)
    assert ran.lines[-1] == "Nothing differs."


def test_a_broken_log_is_shown_up_to_where_it_breaks(run: Run, lab: Lab, tmp_path: Path) -> None:
    created = offset_of(run, lab, "TOPIC_RECORD")
    batches = [json.loads(line) for line in run("dump-log", "--files", lab.segment, "--json").lines]
    broken = next(found for found in batches if found["baseOffset"] == created)
    shutil.copytree(lab.copy, tmp_path / "copy")
    segment = tmp_path / "copy" / SEGMENT
    data = bytearray(segment.read_bytes())
    data[broken["position"] + 60] ^= 1
    segment.write_bytes(data)
    ran = run("metadata", "at", "--metadata-dir", tmp_path / "copy", "topics", "features")
    assert ran.code == 1
    assert f"at offset {created}, epoch 1" in ran.lines[0]
    assert f"position {broken['position']}: batch at position {broken['position']} (offset {created}): crc" in ran.out
    assert f"offset {created} and what follows it is not readable" in ran.out
    assert "metadata.version=30" in ran.out

    dumped = run("dump-log", "--files", segment)
    assert dumped.code == 1
    (found,) = [line for line in dumped.lines if line.startswith("Found ")]
    assert f"Found {broken['size']} invalid bytes at position {broken['position']} of {segment}" in found
    assert len([line for line in dumped.lines if line.startswith("baseOffset: ")]) == len(batches) - 1


def test_a_torn_tail_is_reported_with_its_size(run: Run, lab: Lab, tmp_path: Path) -> None:
    batches = [json.loads(line) for line in run("dump-log", "--files", lab.segment, "--json").lines]
    last = batches[-1]
    torn = tmp_path / "00000000000000000000.log"
    torn.write_bytes(lab.segment.read_bytes()[: last["position"] + 30])
    ran = run("dump-log", "--files", torn)
    assert ran.code == 1
    assert ran.lines[-1].startswith(f"Found 30 invalid bytes at the end of {torn} from position {last['position']} on: ")


def test_dumps_have_the_shape_of_kafkas_tool(run: Run, lab: Lab) -> None:
    ran = run("dump-log", "--files", lab.segment, "--cluster-metadata-decoder")
    assert ran.lines[:2] == [f"Dumping {lab.segment}", "Log starting offset: 0"]
    assert ran.lines[3].startswith(
        "baseOffset: 0 lastOffset: 2 count: 3 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 1 isTransactional: false isControl: true deleteHorizonMs: OptionalLong.empty position: 4096 "
    )
    assert " magic: 2 compresscodec: none crc: " in ran.lines[3]
    assert "isvalid: true" in ran.lines[3]
    assert '"leaderId":3000,"voters":[{"voterId":3000}]' in ran.lines[4]
    bare = run("dump-log", "--files", lab.segment, "--cluster-metadata-decoder", "--skip-record-metadata")
    assert any(line.startswith('| payload: {"type":"TOPIC_RECORD","version":0,"data":{"name":"orders"') for line in bare.lines)
    assert not any(line.startswith("| ") for line in run("dump-log", "--files", lab.segment).lines)
    few = run("dump-log", "--files", lab.segment, "--max-bytes", 5000)
    assert few.code == 0
    assert 0 < len(few.lines) < len(run("dump-log", "--files", lab.segment).lines)


@pytest.mark.parametrize(
    ("topic", "beginning"),
    [
        (
            "orders",
            "| offset: 0 CreateTime: 1795255422236 keySize: 4 valueSize: 285 sequence: 0 headerKeys: [trace] key: k370 payload: ",
        ),
        (
            "clicks",
            "| offset: 0 CreateTime: 1795255438550 keySize: 4 valueSize: 273 sequence: -1 headerKeys: [trace] key: k450 ",
        ),
        (
            "payments",
            "| offset: 0 CreateTime: 1795255426631 keySize: 4 valueSize: 146 sequence: 0 headerKeys: [trace] key: k433 ",
        ),
    ],
)
def test_partitions_logs_are_shown_with_their_records(run: Run, topic: str, beginning: str) -> None:
    path = SEGMENTS / f"{topic}-0" / "00000000000000000000.log"
    ran = run("dump-log", "--files", path, "--print-data-log")
    assert (ran.code, ran.lines[1]) == (0, "Log starting offset: 0")
    assert ran.lines[3].startswith(beginning)
    quiet = run("dump-log", "--files", path)
    assert all(line.startswith("baseOffset: ") for line in quiet.lines[2:])
    if topic == "payments":
        assert any("endTxnMarker: COMMIT coordinatorEpoch: " in line for line in ran.lines)
        assert any("endTxnMarker: ABORT coordinatorEpoch: " in line for line in ran.lines)


def test_a_flipped_bit_in_a_partitions_log_is_reported_and_reading_continues(run: Run, tmp_path: Path) -> None:
    data = bytearray((SEGMENTS / "orders-0" / "00000000000000000000.log").read_bytes())
    data[200] ^= 1
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    lines = [json.loads(line) for line in run("dump-log", "--files", path, "--json").lines]
    assert [line["isvalid"] for line in lines] == [False] + [True] * (len(lines) - 1)
    assert "crc is " in lines[0]["error"]


def test_an_index_is_checked_against_its_log(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes((SEGMENTS / "clicks-0" / "00000000000000000000.log").read_bytes())
    second = json.loads(run("dump-log", "--files", log, "--json").lines[1])
    index = log.with_suffix(".index")

    def entry(offset: int, position: int) -> bytes:
        return offset.to_bytes(4, "big") + position.to_bytes(4, "big")

    index.write_bytes(entry(second["lastOffset"], second["position"]))
    assert run("dump-log", "--files", index).code == 0
    index.write_bytes(entry(second["lastOffset"] - 1, second["position"]) + entry(9999, 7))
    ran = run("dump-log", "--files", index)
    assert ran.code == 1
    assert f"the batch there ends with offset {second['lastOffset']}" in ran.err
    assert "no batch begins there" in ran.err


@pytest.mark.parametrize(
    ("name", "said", "code"),
    [("x.txt", "does not end in .log, .checkpoint, .index", 64), ("none.log", "is not a file", 1)],
)
def test_other_files_are_refused(run: Run, tmp_path: Path, name: str, said: str, code: int) -> None:
    (tmp_path / "x.txt").write_text("")
    ran = run("dump-log", "--files", tmp_path / name)
    assert (ran.code, said in ran.err) == (code, True)


def test_the_shell_does_one_command_and_ends(run: Run, lab: Lab) -> None:
    for source in (("--metadata-dir", lab.copy), ("--bootstrap-server", lab.server)):
        assert run("metadata-shell", *source, "cat", "/image/topics/byName/orders/0/replicas").out == "[0,1]\n"
        assert run("metadata-shell", *source, "ls", "/local").out == "version\ncommitId\n"
        assert run("metadata-shell", *source, "cat", "/image/scram/SCRAM-SHA-256/alice/salt").out == "[hidden]\n"
    wrong = run("metadata-shell", "--metadata-dir", lab.copy, "cat", "/image/nothing")
    assert (wrong.code, wrong.err.splitlines()[-1]) == (1, "Error: /image/nothing: no such file or directory")


@pytest.mark.parametrize("word", ["exit", "quit"])
def test_the_shell_is_left_by_a_word(run: Run, lab: Lab, word: str) -> None:
    assert run("metadata-shell", "--metadata-dir", lab.copy, word).code == 0


def test_the_shell_reads_commands_from_its_input(run: Run, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("cd /image/cluster\npwd\nls\nfind brokers/1/epoch\nhistory 1\nexit\nls\n"))
    ran = run("metadata-shell", "--metadata-dir", lab.copy)
    assert ran.code == 0
    assert ran.lines == ["/image/cluster", "brokers", "controllers", "brokers/1/epoch", "    5  history 1"]


def test_snapshots_can_be_looked_into_and_compared(run: Run, lab: Lab) -> None:
    taken = run("snapshot", "create", "--bootstrap-server", lab.server, "--json").json["snapshot"]
    assert taken["end_offset"] > 0
    partition = next(lab.copy.parent.glob("cluster/broker-0/metadata/__cluster_metadata-0"))
    path = max(partition.glob("*.checkpoint"))
    assert run("metadata-shell", "-s", path, "cat", "/image/topics/byName/orders/name").out == "orders\n"
    assert run("metadata", "diff", "--from", path, "--to", path).lines[-1] == "Nothing differs."
    assert run("dump-log", "--files", path).lines[1].startswith(f"Snapshot end offset: {taken['end_offset']}, epoch: ")
    refused = run("metadata-shell", "-s", path, "--offset", 3, "ls")
    assert "is one snapshot and has no other moment" in refused.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("metadata", "at"), "no cluster is up on this machine; start one"),
        (("metadata", "at", "--metadata-dir", "/x", "--bootstrap-server", "h:1"), "at most one of --metadata-dir, --bootstrap-s"),
        (("metadata", "at", "--metadata-dir", "/x", "--offset", "1", "--time", "1"), "give one of them"),
        (("metadata", "at", "--metadata-dir", "/x", "--time", "soon"), "invalid time 'soon'"),
        (("metadata", "diff", "--from", "soon", "--metadata-dir", "/x"), "invalid moment 'soon'"),
        (("metadata-shell", "--watch", "1", "--metadata-dir", "/x"), "--watch repeats a command"),
    ],
)
def test_missing_and_conflicting_options_are_refused(run: Run, arguments: tuple[str, ...], said: str) -> None:
    ran = run(*arguments)
    assert (ran.code, said in ran.err) == (1 if said.startswith("no cluster is up") else 64, True), ran.err


def test_a_directory_without_a_log_is_an_error(run: Run) -> None:
    ran = run("metadata", "at", "--metadata-dir", "/nowhere")
    assert (ran.code, "there is no metadata log; give a node's metadata.log.dir\n" in ran.err) == (1, True), ran.err


def test_moments_are_offsets_times_or_words() -> None:
    assert parse_time("2026-11-21T17:06:35Z") == parse_time("2026-11-21T17:06:35") == 1795280795000
    assert parse_time("2026-11-21T18:06:35.5+01:00") == 1795280795500
    assert parse_point("4711") == Moment(offset=4711)
    assert parse_point("@1795280795000") == parse_point("2026-11-21T17:06:35Z") == Moment(time_ms=1795280795000)
    assert parse_moment(None, None) == parse_point("newest") == Moment()
    with pytest.raises(CommandFailed, match="expected an offset, newest, a time"):
        parse_point("yesterday")


def test_completion_offers_commands_then_names() -> None:
    leaves: dict[str, Any] = {"salt": Hidden(b"x"), "size": 1}
    inner = Directory(lambda: leaves, leaves.__getitem__)
    shell = Shell(Directory(lambda: ["image", "local"], lambda name: inner))
    line = "c"
    complete = completer(shell, lambda: line)
    assert [complete("c", state) for state in range(3)] == ["cat ", "cd ", None]
    line = "cat /im"
    assert complete("/im", 0) == "/image/"
    assert shell.completions("image/s", is_command=False) == ["image/salt ", "image/size "]
    assert shell.completions("nothing/s", is_command=False) == []
    assert list(shell.run("man tree")) == [f"{COMMANDS['tree'].usage}: {COMMANDS['tree'].about}"]
    assert list(shell.run("tree image")) == ["salt: [hidden]", "size: 1"]
    with pytest.raises(ShellError, match="quote names with blanks"):
        shell.run("cat 'x")
