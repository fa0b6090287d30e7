"""Everything that a harness makes on this machine and that could outlive it, noted before it is made so that it can be undone.

Theory of operation. Every process of the harness keeps one file, `$XDG_STATE_HOME/kraftlab/chaos/RUN.json`, with its identity and
its processes, mounts and directories; networks end with the processes that hold them. An entry is added before the thing is made
(a process: as soon as its id is known) and removed when the thing is gone. When the harness ends, it undoes the remaining
entries, newest first. After a kill -9 of the harness `kraftlab chaos clean` undoes them from the file. A process is identified by
its id and its start time, so a process that got the same id later is never killed. After a reboot only directories remain.

Only things noted in such a file are ever touched, and mounts and directories only below directories that the harness has made,
which have its mark in their names.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from kraftlab.config.json_files import BadJson, read_json
from kraftlab.lab import ClusterError
from kraftlab.lab.locking import LEFT_WITHIN_S, is_left

MARK = "kraftlab-chaos-"
"""The prefix of directories that a harness has made."""
_GONE_WITHIN_S = 5.0
_UNUSED_WITHIN_S = 15.0
_COMMAND_TIMEOUT_S = 20.0
_ESCAPED = re.compile(rb"\\([0-7]{3})")
"""Linux's escapes for spaces and the like in the paths of mounts."""


class Process(msgspec.Struct, frozen=True, tag="process"):
    """`began` is the start time in the format of the operating system."""

    pid: int
    began: str
    what: str = ""


class Mount(msgspec.Struct, frozen=True, tag="mount"):
    """A file system mounted at `path`."""

    path: str


class Directory(msgspec.Struct, frozen=True, tag="directory"):
    path: str


Entry = Process | Mount | Directory


class Page(msgspec.Struct, frozen=True):
    """The file of a ledger. `boot` identifies the current boot of the machine."""

    run: str
    harness: Process
    boot: str
    entries: tuple[Entry, ...] = ()
    version: int = 1


class NotUndone(Exception):
    """A thing that a harness has made still exists; the text says which, why, and what to do."""


class Ledger:
    """The ledger of one harness. Thread-safe. Closing it, leaving it as a context manager and the end of the process undo the
    remaining entries.
    """

    def __init__(self, home: Path | None = None) -> None:
        self.run = secrets.token_hex(4)
        self._home = home or state_directory()
        self._path = self._home / f"{self.run}.json"
        self._entries: list[Entry] = []
        self._turn = threading.Lock()
        self._harness = Process(os.getpid(), began(os.getpid()) or "", "harness")
        atexit.register(self.close)

    def add(self, entry: Entry) -> None:
        """Note a thing that is about to be made. ClusterError if the file cannot be written."""
        with self._turn:
            self._entries.append(entry)
            self._write()

    def drop(self, entry: Entry) -> None:
        """Remove the entry of a thing that is gone."""
        with self._turn:
            self._entries.remove(entry)
            self._write()

    def add_process(self, pid: int, what: str) -> Process | None:
        """Note a process that has just begun; None if it has already ended."""
        moment = began(pid)
        if moment is None:
            return None
        entry = Process(pid, moment, what)
        self.add(entry)
        return entry

    def new_directory(self, *, within: str | os.PathLike[str] | None = None) -> Path:
        """Create an empty directory that is removed with the ledger."""
        path = Path(within or tempfile.gettempdir()) / f"{MARK}{self.run}-{secrets.token_hex(3)}"
        self.add(Directory(str(path)))
        path.mkdir()
        return path

    def _write(self) -> None:
        page = Page(self.run, self._harness, boot(), tuple(self._entries))
        temporary = self._path.with_suffix(".tmp")
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(msgspec.json.encode(page))
            temporary.replace(self._path)
        except OSError as error:
            raise ClusterError(
                f"{self._path} cannot be written ({error.strerror}). It lists what to undo if this run is killed. Let "
                "XDG_STATE_HOME name another directory, or free some space"
            ) from error

    def close(self) -> None:
        """Undo the remaining entries. NotUndone; entries that could not be undone stay in the file."""
        atexit.unregister(self.close)
        if self._harness.pid != os.getpid():
            return  # the copy of a forked child
        self._entries, faults = _undo_all(self._entries)
        if faults:
            self._write()
            raise NotUndone("; ".join(faults))
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._path.unlink()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


# -- leftovers of other harnesses ----------------------------------------------------------------------------------------


class CleanupResult(msgspec.Struct, frozen=True):
    """The result for one ledger. `is_running`: its harness still runs and nothing was touched. `undone`: the things that existed.
    `faults`: the things that could not be undone.
    """

    run: str
    is_running: bool
    undone: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def clean(home: Path | None = None, *, dry_run: bool = False) -> Iterator[CleanupResult]:
    """Undo what dead harnesses have left. `dry_run`: only report it."""
    for path in sorted((home or state_directory()).glob("*.json")):
        try:
            page = read_json(path, Page)
        except FileNotFoundError:
            continue  # its harness has just ended
        except (OSError, BadJson) as error:
            yield CleanupResult(
                path.stem, False, faults=(f"{path} cannot be read: {error}; look at its contents, then remove it",)
            )
            continue
        if is_alive(page.harness):
            yield CleanupResult(page.run, True)
            continue
        after_reboot = page.boot != boot()
        entries = [entry for entry in page.entries if isinstance(entry, Directory) or not after_reboot]
        there = tuple(text(entry) for entry in reversed(entries) if is_there(entry))
        if dry_run:
            yield CleanupResult(page.run, False, undone=there)
            continue
        left, faults = _undo_all(entries)
        if left:
            path.write_bytes(msgspec.json.encode(msgspec.structs.replace(page, entries=tuple(left), boot=boot())))
        else:
            path.unlink(missing_ok=True)
        yield CleanupResult(page.run, False, undone=there, faults=tuple(faults))


def _undo_all(entries: list[Entry]) -> tuple[list[Entry], list[str]]:
    """Undo the entries, newest first, since mounts must go before their directories. Return the entries that remain, and why."""
    left: list[Entry] = []
    faults: list[str] = []
    for entry in reversed(entries):
        try:
            if is_there(entry):
                undo(entry)
        except (OSError, NotUndone) as error:
            left.insert(0, entry)
            faults.append(str(error))
    return left, faults


def text(entry: Entry) -> str:
    match entry:
        case Process(pid=pid, what=what):
            return f"process {pid} ({what})"
        case Mount(path=path):
            return f"mount {path}"
        case Directory(path=path):
            return f"directory {path}"


def is_there(entry: Entry) -> bool:
    match entry:
        case Process():
            return is_alive(entry)
        case Mount(path=path):
            return os.path.ismount(path)
        case Directory(path=path):
            return os.path.isdir(path)


def undo(entry: Entry) -> None:
    """Remove the thing. NotUndone, OSError."""
    match entry:
        case Process(pid=pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + _GONE_WITHIN_S
            while is_alive(entry):
                if time.monotonic() > deadline:
                    raise NotUndone(f"{text(entry)} does not end; see `ps -o stat,wchan {pid}`")
                time.sleep(0.01)
        case Mount(path=path):
            _require_mark(path, entry)
            _unmount(path)
        case Directory(path=path):
            _require_mark(path, entry)
            within = [mount for mount in _mounts() if Path(mount).is_relative_to(path)]
            if within:
                raise NotUndone(f"{text(entry)} has {', '.join(within)} mounted in it")
            if not is_left(Path(path)):
                raise NotUndone(f"nodes of a cluster have not left {text(entry)} within {LEFT_WITHIN_S:g} s; end them")
            shutil.rmtree(path)


def _unmount(path: str) -> None:
    """Unmount; retry while files are open, because nodes end shortly after their harness."""
    deadline = time.monotonic() + _UNUSED_WITHIN_S
    while True:
        try:
            return _run("umount", path)
        except NotUndone:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _mounts() -> list[str]:
    try:
        lines = Path("/proc/self/mounts").read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), line.split()[1])) for line in lines]


def _require_mark(path: str, entry: Entry) -> None:
    if not any(part.startswith(MARK) for part in Path(path).parts):
        raise NotUndone(f"{text(entry)} was not made by a harness: no part of its name begins with {MARK}; remove it yourself")


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotUndone(f"`{' '.join(command)}` does not end; run it yourself") from error
    if done.returncode != 0:
        raise NotUndone(f"`{' '.join(command)}` failed: {done.stderr.strip()}")


# -- this machine --------------------------------------------------------------------------------------------------------


def state_directory() -> Path:
    """Return the directory of the ledgers."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "kraftlab" / "chaos"


def is_alive(process: Process) -> bool:
    """Return True if this very process still runs."""
    return began(process.pid) == process.began


def began(pid: int) -> str | None:
    """Return the start time of a process; None if no process with this id runs."""
    stat = Path(f"/proc/{pid}/stat")
    if os.path.exists("/proc/self/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in "ZX" else fields[19]
    asked = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, moment = asked.stdout.strip().partition(" ")
    return moment.strip() if state and not state.startswith("Z") else None


def boot() -> str:
    """Return an identifier of the current boot; "" if the system has none."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
