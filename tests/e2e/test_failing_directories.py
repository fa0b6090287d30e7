"""One of two log directories of a broker fails: every error in every operation, in real processes below Python's file calls.

Only that directory goes offline, its leaders move, the other serves, and nothing that was acknowledged is lost. Once its disk is
repaired it comes back without a restart. On a full disk appends are refused and nothing goes offline; a short write is continued.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import ClusterUnreachable, answer_of
from kraftlab.common.errors import ApiError
from kraftlab.demo.lab import wait_until
from kraftlab.demo.load import missing
from kraftlab.lab import LocalCluster
from kraftlab.lab.cluster_plan import ClusterError
from kraftlab.lab.faults.failing_calls import SHORT, FailingCalls, Rule
from kraftlab.records.record_batch import Record, build_batch

from .conftest import OVERRIDES, Workbench, scratch_directory

pytestmark = pytest.mark.cluster

SEGMENT_BYTES = 1 << 20
CHUNK_BYTES = 300_000
PREFERRED = 0
PATIENT_MS = 20_000
IMPATIENT_MS = 1500
ERRORS = (errno.EIO, errno.EROFS, errno.ENOSPC, errno.EACCES, errno.ENOENT, errno.ESTALE)
READ_ERRORS = (errno.EIO, errno.ESTALE)
BROKEN = (errno.EIO, errno.EROFS, errno.EACCES)


class Operation(NamedTuple):
    """Work that a broker does in a log directory: the call in it that fails, on which files, and how to cause it."""

    name: str
    call: str
    files: str
    cause: Callable[[Disks], None]
    errors: tuple[int, ...] = ERRORS
    full_is_offline: bool = False
    """True where a full disk leaves the state of the files unknown."""


class Disks:
    """A cluster whose broker 0 leads partition 0 of topic `bad` in a directory that fails, and of topic `good` in another."""

    def __init__(self, lab: Workbench, calls: FailingCalls) -> None:
        self.lab, self.calls = lab, calls
        self.bad_dir, self.good_dir = lab.cluster.log_dirs(0)
        self.acknowledged: dict[str, dict[bytes, int]] = {"bad": {}, "good": {}}
        self.patience_ms = PATIENT_MS
        """Time for a write; short where it is expected to be refused."""
        self.doomed = 0
        """Number of topics that were made to be deleted."""
        for topic, log_dir in (("bad", self.bad_dir), ("good", self.good_dir)):
            self.create(topic, log_dir)

    def create(self, topic: str, log_dir: Path, **configs: str) -> None:
        """Create a topic with broker 0's replica in that directory."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self.lab.create_topic(topic, [0, 1], configs={"segment.bytes": str(SEGMENT_BYTES), **settings})
        self.move(topic, log_dir)
        wait_until(f"{topic} is in {log_dir}", lambda: self.place_of(topic) == str(log_dir))

    def move(self, topic: str, log_dir: Path | str) -> None:
        self.lab.admin.alter_replica_log_dirs(0, {(topic, 0): str(log_dir)})

    def place_of(self, topic: str, *, is_future: bool = False) -> str | None:
        rows = self.lab.replicas_on_disk().get((topic, 0), [])
        return next((row.log_dir for row in rows if row.broker == 0 and row.is_future == is_future), None)

    def produce(self, topic: str, size_bytes: int = 100) -> None:
        value = os.urandom(size_bytes)
        records = build_batch([Record(b"key", value, int(time.time() * 1000))])
        answer = self.lab.data.produce(topic, 0, records, timeout_ms=self.patience_ms)
        self.acknowledged[topic][value] = answer.base_offset

    def produce_until_roll(self, topic: str = "bad") -> None:
        for _ in range(SEGMENT_BYTES // CHUNK_BYTES + 1):
            self.produce(topic, CHUNK_BYTES)

    def error_of(self, log_dir: Path) -> str:
        results = self.lab.admin.describe_log_dirs(0, [])
        return next(result.error_message for result in results if result.log_dir == str(log_dir))

    def leader_of(self, topic: str) -> int:
        return self.lab.partitions()[topic, 0].leader_id

    def bring_online(self) -> None:
        self.lab.admin.call_broker(0, pb.OnlineLogDirResponse, pb.OnlineLogDirRequest(log_dir=str(self.bad_dir)))

    def repair(self) -> None:
        """Bring the directory back; broker 0 leads again."""
        self.bring_online()
        assert not self.error_of(self.bad_dir)
        for topic in ("bad", "good"):
            wait_until(f"{topic} is in sync", lambda topic=topic: sorted(self.lab.partitions()[topic, 0].isr_nodes) == [0, 1])
            if self.leader_of(topic) != 0:
                answer_of(lambda topic=topic: self.lab.admin.elect_leaders(PREFERRED, [(topic, 0)]))
                wait_until(f"broker 0 leads {topic}", lambda topic=topic: self.leader_of(topic) == 0)
        self.lab.data.refresh()


def append(disks: Disks) -> None:
    disks.produce("bad")


def nothing(disks: Disks) -> None:
    """The broker does it by itself, again and again."""


def roll(disks: Disks) -> None:
    disks.produce_until_roll()


def compact(disks: Disks) -> None:
    disks.produce_until_roll("compacted")


def delete_a_topic(disks: Disks) -> None:
    disks.lab.admin.delete_topics([f"doomed{disks.doomed}"])


def move_in(disks: Disks) -> None:
    disks.move("mover", disks.bad_dir)


def move_out(disks: Disks) -> None:
    disks.move("bad", disks.good_dir)


OPERATIONS = (
    Operation("append", "write", "bad-0/*.log", append, (*ERRORS, SHORT)),
    Operation("read", "read", "bad-0/*.log", append, READ_ERRORS),
    Operation("roll", "create", "bad-0/*.log", roll),
    Operation("flush", "sync", "bad-0/*.log", roll, full_is_offline=True),
    Operation("index", "create", "bad-0/*.index", roll),
    Operation("open", "open", "", nothing, (errno.EIO, errno.EACCES, errno.ENOENT, errno.ESTALE)),
    Operation("checkpoint", "create", "*checkpoint*", nothing),
    Operation("checkpoint name", "rename", "*checkpoint*", nothing),
    Operation("rename", "rename", "doomed*-0", delete_a_topic, full_is_offline=True),
    Operation("delete", "remove", "doomed*-delete*", delete_a_topic, BROKEN),
    Operation("compaction", "write", "compacted-0/*.cleaned", compact, (*ERRORS, SHORT)),
    Operation("move in", "write", "mover-0*-future/*.log", move_in, (*ERRORS, SHORT)),
    Operation("move out", "read", "bad-0/*.log", move_out, READ_ERRORS),
)
CELLS = [(operation, number) for operation in OPERATIONS for number in operation.errors]
SELECTION = (
    ("append", errno.EIO),
    ("append", errno.ENOSPC),
    ("roll", errno.EROFS),
    ("checkpoint", errno.EIO),
    ("move in", SHORT),
)


@pytest.fixture
def disks() -> Iterator[Disks]:
    with scratch_directory("failing") as directory:
        try:
            calls = FailingCalls(directory / "calls")
        except ClusterError as error:
            pytest.skip(str(error))
        overrides = OVERRIDES | {"replica.high.watermark.checkpoint.interval.ms": "200", "log.cleaner.backoff.ms": "100"}
        with LocalCluster(directory / "cluster", 1, 2, 2, overrides=overrides, failing_calls=calls) as cluster:
            lab = Workbench(cluster)
            try:
                yield Disks(lab, calls)
            finally:
                lab.close()
        calls.close()


def test_a_directory_that_fails_goes_offline_alone_and_comes_back(disks: Disks, kraftlab_here: Any) -> None:
    play(disks, [cell for cell in CELLS if (cell[0].name, cell[1]) in SELECTION])
    a_copy_is_kept(disks, kraftlab_here)


@pytest.mark.nightly
def test_every_error_in_every_operation(disks: Disks) -> None:
    play(disks, CELLS)


def play(disks: Disks, cells: list[tuple[Operation, int]]) -> None:
    for operation, number in cells:
        try:
            play_one(disks, operation, number)
        except BaseException as error:
            error.add_note(f"in {operation.name}, {errno.errorcode.get(number, 'short write')}")
            raise
    mount_vanishes(disks)
    for topic in ("bad", "good"):
        assert missing(disks.lab.data, (topic, 0), disks.acknowledged[topic]) == 0
    assert disks.lab.metadata_is_equal_everywhere()


def play_one(disks: Disks, operation: Operation, number: int) -> None:
    prepare(disks, operation)
    goes_offline = number != SHORT and (number != errno.ENOSPC or operation.full_is_offline)
    rule = Rule(operation.call, number, f"{disks.bad_dir}/{operation.files}" if operation.files else str(disks.bad_dir))
    count = disks.calls.count
    with disks.calls.failing(rule):
        disks.patience_ms = PATIENT_MS if goes_offline or number == SHORT else IMPATIENT_MS
        try:
            operation.cause(disks)
        except (ApiError, ClusterUnreachable):
            assert number == errno.ENOSPC, "the leader has moved, or the call went on"
        disks.patience_ms = PATIENT_MS
        wait_until("the fault has struck", lambda: disks.calls.count > count)
        if goes_offline:
            wait_until("the directory is offline", lambda: disks.error_of(disks.bad_dir) != "")
            assert os.strerror(number) in disks.error_of(disks.bad_dir)
            wait_until("its leaders move", lambda: disks.leader_of("bad") == 1)
            disks.produce("bad")
        disks.produce("good")
        assert not disks.error_of(disks.good_dir)
        assert disks.leader_of("good") == 0
    if not goes_offline:
        assert not disks.error_of(disks.bad_dir)
        disks.produce("bad")
    end(disks, operation)
    disks.repair()


def prepare(disks: Disks, operation: Operation) -> None:
    """Make what the operation works on."""
    if operation.cause is delete_a_topic:
        disks.doomed += 1
        disks.create(f"doomed{disks.doomed}", disks.bad_dir)
    if operation.cause is compact and "compacted" not in disks.acknowledged:
        disks.acknowledged["compacted"] = {}
        disks.create("compacted", disks.bad_dir, cleanup_policy="compact")
    if operation.cause is move_in:
        disks.create("mover", disks.good_dir)
        disks.lab.fill("mover", 200_000)


def end(disks: Disks, operation: Operation) -> None:
    """Remove what `prepare` has made, once the directory works again."""
    disks.bring_online()
    if operation.cause is move_in:
        disks.lab.admin.delete_topics(["mover"])
    if operation.cause is move_out:
        disks.move("bad", disks.bad_dir)
        wait_until("the move is cancelled", lambda: disks.place_of("bad", is_future=True) is None)
    wait_until("its files are gone", lambda: not list(disks.bad_dir.glob("mover-0*")))


def mount_vanishes(disks: Disks) -> None:
    """An empty directory is left, in which writes succeed."""
    aside = disks.bad_dir.with_name("unmounted")
    disks.bad_dir.rename(aside)
    disks.bad_dir.mkdir()
    wait_until("the directory is offline", lambda: disks.error_of(disks.bad_dir) != "")
    wait_until("its leaders move", lambda: disks.leader_of("bad") == 1)
    with pytest.raises(ApiError, match="is its disk mounted"):
        disks.bring_online()
    assert not [path for path in disks.bad_dir.iterdir() if path.is_dir()], "no replica is created there"
    shutil.rmtree(disks.bad_dir)
    aside.rename(disks.bad_dir)
    disks.repair()
    disks.produce("bad")


def a_copy_is_kept(disks: Disks, kraftlab_here: Any) -> None:
    """The source of a move fails: the copy waits for a decision, and the source is set aside when it comes back."""
    lab = disks.lab
    lab.create_topic("alone", [0])
    source, target = Path(str(disks.place_of("alone"))), disks.bad_dir
    if source == target:
        target = disks.good_dir
    lab.fill("alone", 200_000)
    lab.set_broker_configs({"replica.alter.log.dirs.io.max.bytes.per.second": "1"})
    disks.move("alone", target)
    wait_until("the move begins", lambda: disks.place_of("alone", is_future=True) == str(target))
    aside = source.with_name("unmounted")
    source.rename(aside)
    source.mkdir()

    def kept() -> list[str]:
        return [
            copy.path for result in lab.admin.describe_log_dirs(0) for copy in result.kept_copies if copy.topic_name == "alone"
        ]

    wait_until("its copy is kept", lambda: bool(kept()))
    code, said = kraftlab_here("log-dirs", *lab.at, "--describe")
    assert code == 0 and kept()[0] in said
    code, said = kraftlab_here("log-dirs", *lab.at, "--promote", "alone-0", "--broker", "0", "--json")
    assert code == 64 and "add --force" in said
    code, said = kraftlab_here("log-dirs", *lab.at, "--promote", "alone-0", "--broker", "0", "--force")
    assert code == 0 and "It lacks" in said and "was promoted" in said
    wait_until("the copy leads", lambda: disks.leader_of("alone") == 0)
    lab.fill("alone", 20_000)

    shutil.rmtree(source)
    aside.rename(source)
    code, said = kraftlab_here("log-dirs", *lab.at, "--online", str(source), "--broker", "0")
    assert code == 0 and "alone-0: set aside" in said
    wait_until("it is shown", lambda: any(path.startswith(str(source)) for path in kept()))
    code, said = kraftlab_here("log-dirs", *lab.at, "--drop", "alone-0", "--broker", "0", "--force")
    assert code == 0 and "was dropped" in said
    wait_until("its files are gone", lambda: not list(source.glob("alone-0*")))
    assert disks.place_of("alone") == str(target)
