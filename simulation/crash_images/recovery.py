"""Images that a crash of a recorded run can leave, and the judgement of the broker's recovery on each.

Theory of operation. The trace is walked from its beginning. Before each operation every image is made that a kill of the process
or a power cut at that moment could leave (`kraftlab.checking.disk_model`), with each directory that the metadata may name by
then: the committed one and the requested one. Equal images are judged once, by the strictest of their demands.

On each image the real start runs: log directories are opened and recovered, and the start-up plan is applied. On images of
kills (`thorough`: on all) a whole broker starts after that: the replica becomes leader or follower, moves are resumed and end,
assignments are sent. These rules must hold at once, and again when the broker has settled:

- the replica is served, from a directory of the plain name;
- it holds the acknowledged batches, each once, in order, and to the byte, and no others: all of them after a kill, the durable
  ones after a loss of power;
- its leader epochs are those of its batches, and its high watermark is not below the checkpoint's;
- it takes a new record;
- when it has settled, one directory is left, the metadata names it, and a move to that directory changes nothing.

Images of kills are also started with one of the disks missing, and once more when that disk is back: the log that is served in
between is complete, a replica whose directory is there is served, and in the end nothing is lost.
"""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kraftlab.broker.log.errors import ReplicaOffline
from kraftlab.broker.log.partition_log import PartitionLog
from kraftlab.broker.replication.replica_errors import ReplicaError
from kraftlab.checking.disk_model import DiskModel, Mark, Tree
from kraftlab.checking.scratch_directory import own_directory
from kraftlab.common.uuids import Uuid
from kraftlab.records.errors import LogError
from kraftlab.records.record_batch import read_header

from .one_broker import NUMBER, PLAIN_NAME, TOPIC, TOPIC_ID, NotSettled, OneBroker, run, start_logs
from .protocol import RecordedRun
from .recorder import Recorder
from .watched_disks import lay_out

NEXT_LEADER_EPOCH = 50
SAMPLE = 30
KILL, IN_ORDER, ANY_ORDER = "kill", "power, names in order", "power, names in any order"


class Demand(NamedTuple):
    """Demand on an image: the least number of batches of that branch of the log, and the least high watermark."""

    batches: int
    high_watermark: int
    branch: int = 0


class Case(NamedTuple):
    """An image, and the directory in which the metadata places the replica. `step` and `crash`: the first crash that leaves the
    image, of kills if there is one.
    """

    tree: Tree
    assigned: Uuid
    step: int
    crash: str


class JudgedCase(NamedTuple):
    """`fault` is the first rule that a case broke. `without`: the disk that was missing, "" if none was."""

    case: Case
    fault: str
    without: str = ""


class _Moment:
    """State of the marks at some operation of the trace."""

    def __init__(self) -> None:
        self.acked = self.durable = self.high_watermark = self.branch = 0
        self.has_begun = False
        self.committed: Uuid = b""
        self.asked: Uuid | None = None

    def pass_by(self, mark: Mark) -> None:
        match mark.what:
            case "begun":
                self.has_begun = True
            case "acked":
                self.acked = mark.value
            case "durable":
                self.durable = max(self.durable, mark.value)
            case "high watermark":
                self.high_watermark = mark.value
            case "branch":
                self.branch, cut = mark.value
                self.acked, self.durable = min(self.acked, cut), min(self.durable, cut)
            case "asked":
                self.asked = mark.value
            case "committed":
                self.committed, self.asked = mark.value, None

    @property
    def assignments(self) -> Iterable[Uuid]:
        return {self.committed, self.asked or self.committed}


def cases(recorded: RecordedRun, crashes: Sequence[str] = (KILL, IN_ORDER, ANY_ORDER)) -> dict[Case, Demand]:
    """Return every different image, with the largest demand on it."""
    model, moment = DiskModel(recorded.disks), _Moment()
    found: dict[tuple[Tree, Uuid, int], tuple[Case, Demand]] = {}
    for step, operation in enumerate((*recorded.trace, Mark("end"))):
        if moment.has_begun:
            for crash, tree in _images(model, crashes):
                held = moment.acked if crash == KILL else moment.durable
                demand = Demand(held, moment.high_watermark, moment.branch)
                for assigned in moment.assignments:
                    key = tree, assigned, moment.branch
                    case = Case(tree, assigned, step, crash)
                    first, before = found.get(key, (case, demand))
                    if crash == KILL != first.crash:
                        first = case
                    found[key] = first, Demand(*map(max, zip(before, demand, strict=True)))
        model.apply(operation)
        if isinstance(operation, Mark):
            moment.pass_by(operation)
    return dict(found.values())


def sample(wanted: dict[Case, Demand]) -> dict[Case, Demand]:
    """Return at most `SAMPLE` images of each kind of crash, spread over the run."""
    kinds = [[case for case in wanted if case.crash == crash] for crash in (KILL, IN_ORDER, ANY_ORDER)]
    return {case: wanted[case] for kind in kinds for case in kind[:: -(-len(kind) // SAMPLE) or 1]}


def _images(model: DiskModel, crashes: Sequence[str]) -> Iterator[tuple[str, Tree]]:
    if KILL in crashes:
        yield KILL, model.as_seen()
    if IN_ORDER in crashes:
        yield from ((IN_ORDER, tree) for tree in model.in_order())
    if ANY_ORDER in crashes:
        yield from ((ANY_ORDER, tree) for tree in model.in_any_order())


def judge(
    recorded: RecordedRun, wanted: dict[Case, Demand], *, thorough: bool = False, limit: int | None = None
) -> list[JudgedCase]:
    """Return the cases that break a rule, at most `limit`. `thorough`: a whole broker settles on every image."""
    broken: list[JudgedCase] = []
    with own_directory() as root, quiet():
        judge_one = _Judge(Path(root), recorded, thorough)
        for case, demand in wanted.items():
            broken += judge_one(case, demand)
            if limit is not None and len(broken) >= limit:
                break
    return broken


def recovering(recorded: RecordedRun, case: Case, demand: Demand) -> RecordedRun:
    """Record the recovery of an image as a run of its own, for crashes in the middle of it. The content of the image counts as
    certain, which it is after a loss of power.
    """
    with own_directory() as root, quiet():
        lay_out(Path(root), case.tree)
        disks = [Path(root, name) for name in recorded.disks]
        recorder = Recorder(disks)
        held = (("acked", demand.batches), ("durable", demand.batches), ("high watermark", demand.high_watermark))
        for what, value in (("branch", (demand.branch, 0)), *held, ("committed", case.assigned), ("begun", None)):
            recorder.mark(what, value)
        with recorder.watching():
            run(disks, case.assigned, NEXT_LEADER_EPOCH, recorder.mark, OneBroker.settle)
        return RecordedRun(
            f"recovery of {recorded.name}", recorded.disks, tuple(recorder.trace), recorded.batches, (), recorded.given_up
        )


class Broken(Exception):
    """A broken rule; the text says which."""


class _Judge:
    """Recovers one image after the other, in one directory."""

    def __init__(self, root: Path, recorded: RecordedRun, thorough: bool) -> None:
        self._root, self._recorded, self._thorough = root, recorded, thorough
        self._disks = [root / name for name in recorded.disks]

    def __call__(self, case: Case, demand: Demand) -> list[JudgedCase]:
        found = []
        for without in ("", *self._recorded.disks) if case.crash == KILL else ("",):
            for disk in self._disks:
                shutil.rmtree(disk, ignore_errors=True)
            lay_out(self._root, case.tree)
            fault = self._first_fault(case, demand, without)
            if fault:
                found.append(JudgedCase(case, fault, without))
        return found

    def _first_fault(self, case: Case, demand: Demand, without: str) -> str:
        try:
            if without:
                self._start_without(case, demand, without)
            self._start(case.assigned, demand)
            if self._thorough or (case.crash == KILL and not without):
                self._start_and_settle(case.assigned, demand, is_damaged=bool(without))
        except Broken as broken:
            return str(broken)
        except (LogError, NotSettled, OSError, ReplicaError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _start(self, assigned: Uuid, demand: Demand) -> PartitionLog | None:
        """Start the logs alone; return the log that is served, as it was found."""
        logs = start_logs(self._disks, assigned)
        try:
            with suppress(ReplicaOffline):
                log = logs.get_or_create(TOPIC, TOPIC_ID, NUMBER, assigned, is_counted_on=True)
                self._check(log, demand)
                return log
            if not logs.offline_dirs:
                raise Broken("the replica is not served")
            return None
        finally:
            logs.abandon()

    def _start_without(self, case: Case, demand: Demand, without: str) -> None:
        """Start with a disk missing."""
        missing, aside = self._root / without, self._root / f"{without}.aside"
        lies_on = {path.split("/")[0] for path, content in case.tree if content is None and path.endswith(f"/{PLAIN_NAME}")}
        missing.rename(aside)
        missing.write_bytes(b"not a directory")
        try:
            if self._start(case.assigned, demand) is None and lies_on - {without}:
                raise Broken(f"the replica is not served, though it lies on {', '.join(lies_on - {without})}")
        finally:
            missing.unlink()
            aside.rename(missing)

    def _start_and_settle(self, assigned: Uuid, demand: Demand, *, is_damaged: bool) -> None:
        """Start a whole broker. `is_damaged`: a start without a disk came before, so that a copy may have been set aside."""

        async def look(broker: OneBroker) -> None:
            self._check(broker.log, demand)
            await broker.settle()
            found = self._check(broker.log, demand)
            _, stored = await broker.produce("one more")
            log = broker.partition.online_log()
            if log.read(0, 1 << 20) != b"".join(found) + stored:
                raise Broken("a record that was appended after the recovery is not where it belongs")
            code, _ = await broker.alter(log.log_dir)
            await broker.settle()
            if code or broker.log is not log:
                raise Broken(f"a move to where the replica is was answered {code}, and the replica is {broker.log!r}")
            broker.logs.remove_expired(1 << 60)
            left = [path for disk in self._disks for path in disk.glob(f"{PLAIN_NAME}*")]
            if left != [log.directory] and not is_damaged:
                raise Broken(f"in the end there are {', '.join(f'{path.parent.name}/{path.name}' for path in left)}")

        run(self._disks, assigned, NEXT_LEADER_EPOCH, lambda what, value: None, look)

    def _check(self, log: PartitionLog | None, demand: Demand) -> tuple[bytes, ...]:
        """Check a log against the demand; return its batches."""
        if log is None:
            raise Broken("the replica is not served")
        if log.directory.name != PLAIN_NAME or not log.directory.is_dir():
            raise Broken(f"{log.directory.name} is served")
        found = self._batches_in(log)
        if log.log_start_offset or len(found) < demand.batches or log.log_end_offset != len(found):
            raise Broken(f"{log!r} holds {len(found)} batches; {demand.batches} have to be there")
        if found[: demand.batches] != self._recorded.branches[demand.branch][: demand.batches]:
            raise Broken(f"{log!r} holds batches that had been given up, in the place of some of the {demand.batches} that count")
        epochs = [(entry.epoch, entry.start_offset) for entry in log.epochs if entry.start_offset < len(found)]
        if epochs != _epochs(found):
            raise Broken(f"the leader epochs are {epochs}, of the batches {_epochs(found)}")
        if log.high_watermark < min(demand.high_watermark, len(found)):
            raise Broken(f"the high watermark is {log.high_watermark}; {demand.high_watermark} was in the checkpoint")
        return found

    def _batches_in(self, log: PartitionLog) -> tuple[bytes, ...]:
        data = log.read(log.log_start_offset, 1 << 20)
        for branch in self._recorded.branches:
            for count, size_bytes in enumerate(itertools.accumulate(map(len, branch), initial=0)):
                if len(data) == size_bytes and data == b"".join(branch[:count]):
                    return branch[:count]
        raise Broken(f"{log!r} holds {len(data)} bytes that are not the first acknowledged batches")


def _epochs(batches: Sequence[bytes]) -> list[tuple[int, int]]:
    epochs: list[tuple[int, int]] = []
    for offset, batch in enumerate(batches):
        epoch = read_header(batch).leader_epoch
        if not epochs or epochs[-1][0] != epoch:
            epochs.append((epoch, offset))
    return epochs


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the log of brokers, which recover thousands of times."""
    logger = logging.getLogger("kraftlab.broker")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
