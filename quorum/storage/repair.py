"""Damage below a committed offset: set the damaged part aside, start without it, fetch it again from the leader.

Recovery has found that this disk no longer holds some committed data. The log keeps its valid beginning. Everything after it is
moved away *with every byte kept*, under names that end in `.damaged`. The file `repair` (checked_file.py) remembers up to which
offset this node may have acknowledged data that it does not hold now. Until its log is durable up to there again, the core keeps
it from voting and from standing for election (`BootState.repair_until`).

**Crashes.** `repair` is written before anything is touched, and lists the steps. Every start finishes the pending steps, in the
same order, before it looks at the log; each may have happened already. Copies are durable before their originals are zeroed. Only
when all steps are done is the list emptied, durably, and the log used again: a new segment may then have an old one's name. At
the end of the repair `repair` is removed first, then the files that were set aside, so a leftover `.damaged` without `repair` is
garbage.

**More damage** during a repair adds to it: the offset never falls. An unreadable `repair` file is refused, because nothing else
records what this node has acknowledged.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec

from .checked_file import read_checked, replace_checked, replacing
from .errors import LogCorrupt, StorageFull
from .file_system import FileSystem
from .identity import LogIdentity
from .recovery import NEXT_STEP, Findings
from .snapshot_file import snapshot_name

FILE_NAME = "repair"
DAMAGED = ".damaged"
WHOLE = -1


class Step(msgspec.Struct, frozen=True):
    """Set a file aside: rename it (`position` WHOLE), or copy its bytes from `position` on, and zero those."""

    source: str
    target: str
    position: int


class Repair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of the file. `reason`: one line about the damage. Names are relative to the partition directory."""

    data_version: int
    cluster_id: str
    directory_id: str
    repair_until: int
    reason: str
    pending: tuple[Step, ...]
    set_aside: tuple[str, ...]


_decoder = msgspec.json.Decoder(Repair)
_encoder = msgspec.json.Encoder()


def read_repair(file_system: FileSystem, directory: str, identity: LogIdentity) -> Repair | None:
    """Return the current repair, None if there is none. LogCorrupt if the file cannot be trusted or is another node's."""
    path = f"{directory}/{FILE_NAME}"
    try:
        line = read_checked(file_system, path)
        if line is None:
            return None
        repair = _decoder.decode(line)
    except (msgspec.DecodeError, ValueError) as error:
        raise LogCorrupt(
            f"{path} cannot be trusted ({error}): how much this node must fetch again is not known. " + NEXT_STEP
        ) from error
    if (repair.data_version, repair.cluster_id, repair.directory_id) != (0, identity.cluster_id, _text(identity.directory_id)):
        raise LogCorrupt(
            f"{path} has version {repair.data_version} and is about cluster {repair.cluster_id!r}, directory "
            f"{repair.directory_id}: not this node's. " + NEXT_STEP
        )
    return repair


def _text(directory_id: bytes) -> str:
    return str(uuid.UUID(bytes=directory_id))


def plan_repair(names: list[str], found: Findings, identity: LogIdentity, running: Repair | None) -> Repair:
    """Plan the steps for these findings. `names` are those in the directory; a running repair is continued."""
    walk, steps, taken = found.walk, [], set(names)

    def add(path: str, position: int) -> None:
        source = path.rpartition("/")[2]
        target, count = f"{source}{DAMAGED}", 1
        while target in taken:
            count += 1
            target = f"{source}.{count}{DAMAGED}"
        taken.add(target)
        steps.append(Step(source, target, position))

    for number in range(walk.stop_segment, len(found.images)):
        image = found.images[number]
        is_kept = walk.first <= number < walk.first + len(walk.starts)
        if not is_kept:
            add(image.file.path, WHOLE)
        elif any(image.read()[walk.stop_position :]):
            add(image.file.path, walk.stop_position)
    for position, _ in found.unusable_snapshots:
        add(snapshot_name(position), WHOLE)
    return Repair(
        data_version=0,
        cluster_id=identity.cluster_id,
        directory_id=_text(identity.directory_id),
        repair_until=max(found.repair_until, running.repair_until if running else 0),
        reason=found.damage,
        pending=tuple(steps),
        set_aside=(*(running.set_aside if running else ()), *(step.target for step in steps)),
    )


def begin_repair(file_system: FileSystem, directory: str, repair: Repair) -> Repair:
    """Write the plan down, then carry it out. StorageFull: there is no room for that; the bytes are all still there."""
    with _needs_room(repair):
        replace_checked(file_system, directory, FILE_NAME, _encoder.encode(repair))
    return continue_repair(file_system, directory, repair)


def continue_repair(file_system: FileSystem, directory: str, repair: Repair) -> Repair:
    """Apply all pending steps, any of which may be done already. StorageFull as above."""
    if not repair.pending:
        return repair
    with _needs_room(repair):
        for step in repair.pending:
            if step.position != WHOLE:
                _copy(file_system, directory, step)
        for step in repair.pending:
            if step.position == WHOLE:
                _rename(file_system, directory, step)
        file_system.sync_directory(directory)
        for step in repair.pending:
            if step.position != WHOLE:
                _zero(file_system, directory, step)
        done = msgspec.structs.replace(repair, pending=())
        replace_checked(file_system, directory, FILE_NAME, _encoder.encode(done))
    return done


@contextmanager
def _needs_room(repair: Repair) -> Iterator[None]:
    try:
        yield
    except StorageFull as error:
        raise StorageFull(
            f"{repair.reason} The damaged part must be set aside before it can be fetched again, and there is no room for that: "
            f"{error} Then start the node again."
        ) from error


def _copy(file_system: FileSystem, directory: str, step: Step) -> None:
    if step.target in file_system.names(directory):
        return
    with closing(file_system.open(f"{directory}/{step.source}")) as source:
        data = source.pread(source.size() - step.position, step.position).rstrip(b"\0")
    with replacing(file_system, directory, step.target) as copy:
        copy.pwrite(data, 0)


def _rename(file_system: FileSystem, directory: str, step: Step) -> None:
    names = file_system.names(directory)
    if step.source not in names:
        return
    if step.target in names:
        file_system.remove(f"{directory}/{step.source}")
    else:
        file_system.rename(f"{directory}/{step.source}", f"{directory}/{step.target}")


def _zero(file_system: FileSystem, directory: str, step: Step) -> None:
    with closing(file_system.open(f"{directory}/{step.source}")) as file:
        file.pwrite(bytes(file.size() - step.position), step.position)
        file.fdatasync()


def end_repair(file_system: FileSystem, directory: str) -> None:
    """Forget the repair, then remove the files that were set aside: all data is durable again. Can be repeated."""
    file_system.remove(f"{directory}/{FILE_NAME}")
    file_system.sync_directory(directory)
    remove_set_aside(file_system, directory)


def remove_set_aside(file_system: FileSystem, directory: str) -> None:
    """Remove the leftovers of an ended repair."""
    leftovers = [name for name in file_system.names(directory) if name.endswith(DAMAGED)]
    for name in leftovers:
        file_system.remove(f"{directory}/{name}")
    if leftovers:
        file_system.sync_directory(directory)
