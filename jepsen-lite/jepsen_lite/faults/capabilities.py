"""The faults that this machine can have. Every capability is tested when it is asked for, and nothing is left of the test.

Theory of operation. A probe does in small what a nemesis does: it attaches strace to a process, or mounts a disk of a few
megabytes and shuts it down. Everything that it makes lives in namespaces that end with it, or is noted in a ledger. A probe that
fails gives the message of the system, and what would help.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from kraftlab.lab import ClusterError
from kraftlab.lab.powered_disk import PoweredDisk

from .errors import CannotStrike
from .kinds import KINDS
from .ledger import Ledger, Mount, NotUndone
from .networks.back_ends import LINKS, NETS
from .strace import kept_injected

_TIMEOUT_S = 20.0


class MissingCapability(Exception):
    """A capability is missing; the text says why."""


class Capability(NamedTuple):
    """`probe` returns what it found or raises MissingCapability; `install` is the remedy."""

    name: str
    summary: str
    probe: Callable[[], str]
    install: str


class ProbeResult(msgspec.Struct, frozen=True):
    """The result of a probe. `install` is empty if the capability is there."""

    name: str
    is_on: bool
    summary: str
    detail: str
    install: str = ""


class NemesisState(msgspec.Struct, frozen=True):
    """The state of a nemesis on this machine. `lacks` are the capabilities that it needs and that are missing. `nets` are the
    back ends that can apply it to links, empty if it breaks none.
    """

    name: str
    is_on: bool
    summary: str
    lacks: tuple[str, ...] = ()
    install: str = ""
    nets: tuple[str, ...] = ()


def _links() -> str:
    return "proxies between the nodes, in the process of the cluster; no privileges needed"


def _files() -> str:
    return "files of nodes that are down"


def _strace() -> str:
    _require("strace")
    with Ledger() as ledger, _sleeper() as sleeper:
        ledger.add_process(sleeper.pid, "a probe")
        try:
            trio.run(partial(_attach, sleeper.pid, ledger))
        except CannotStrike as error:
            raise MissingCapability(str(error)) from error
        finally:
            sleeper.kill()
    return _output_of("strace", "-V").splitlines()[0]


async def _attach(pid: int, ledger: Ledger) -> None:
    async with kept_injected(pid, ["fdatasync:error=EIO"], ledger):
        pass


def _power() -> str:
    if os.geteuid() != 0:
        raise MissingCapability("only root mounts disks")
    _require("mkfs.ext4")
    with Ledger() as ledger:
        try:
            disk = new_disk(ledger, size_mib=8)
            (disk.path / "written").write_bytes(b"and never synced")
            disk.lose_power()
            disk.restore_power()
            lost = not (disk.path / "written").exists()
            disk.unmount()
        except (OSError, ClusterError, NotUndone) as error:
            raise MissingCapability(str(error)) from error
    if not lost:
        raise MissingCapability("a disk that was shut down still had data that was never synced")
    return "ext4 on a loop device that shuts down at once"


def new_disk(ledger: Ledger, *, size_mib: int = 64) -> PoweredDisk:
    """Make an empty disk that is unmounted and removed with the ledger. ClusterError."""
    home = ledger.new_directory()
    disk = PoweredDisk(home / "image", home / "disk")
    ledger.add(Mount(str(disk.path)))
    disk.format(size_mib)
    return disk


def _netns() -> str:
    done = _completed(sys.executable, "-m", f"{__package__}.networks.probe")
    if done.returncode != 0:
        raise MissingCapability((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return done.stdout.strip()


def _prlimit() -> str:
    if not hasattr(resource, "prlimit"):
        raise MissingCapability(f"{sys.platform} has no prlimit")
    with _sleeper() as sleeper:
        try:
            resource.prlimit(sleeper.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        except OSError as error:
            raise MissingCapability(f"prlimit: {error.strerror}") from error
        finally:
            sleeper.kill()
    return "limits of running processes can be changed"


def _eatmydata() -> str:
    for pattern in ("lib/libeatmydata.so*", "lib64/libeatmydata.so*", "lib/*/libeatmydata.so*"):
        for path in Path("/usr").glob(pattern):
            return str(path)
    raise MissingCapability("libeatmydata.so is not in /usr/lib")


def _sleeper() -> subprocess.Popen[bytes]:
    """Start a process that waits and ends with this one."""
    return subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise MissingCapability(f"{program} is not installed")


def _output_of(*command: str) -> str:
    """Return the output of a command. MissingCapability if it fails."""
    done = _completed(*command)
    if done.returncode != 0:
        raise MissingCapability(f"`{' '.join(command)}`: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def _completed(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. MissingCapability if it takes too long."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise MissingCapability(f"`{' '.join(command)}` did not end within {_TIMEOUT_S:g} s") from error


_APT = "on Debian: apt-get install {}"
CAPABILITIES: dict[str, Capability] = {
    capability.name: capability
    for capability in (
        Capability("links", "cut and shape links between nodes", _links, ""),
        Capability("files", "damage files", _files, ""),
        Capability(
            "strace",
            "make system calls of running nodes fail or take long",
            _strace,
            _APT.format("strace") + "; for processes of other users: as root, or with sysctl kernel.yama.ptrace_scope=0",
        ),
        Capability("power", "cut the power of disks", _power, _APT.format("e2fsprogs mount") + "; as root"),
        Capability("prlimit", "limit the resources of running processes", _prlimit, "only on Linux"),
        Capability(
            "netns",
            "namespaces of nodes with links in a program",
            _netns,
            _APT.format("iproute2") + "; modprobe tun; as root, or as a user who can open /dev/net/tun",
        ),
        Capability("eatmydata", "run a node whose fsyncs do nothing", _eatmydata, _APT.format("eatmydata")),
    )
}
"""By name; those that nemeses need come first."""


def probe(names: Collection[str] | None = None) -> tuple[ProbeResult, ...]:
    """Test those capabilities; None: all."""
    return tuple(_probe(capability) for name, capability in CAPABILITIES.items() if names is None or name in names)


def _probe(capability: Capability) -> ProbeResult:
    try:
        return ProbeResult(capability.name, True, capability.summary, capability.probe())
    except MissingCapability as refusal:
        return ProbeResult(capability.name, False, capability.summary, str(refusal), capability.install)


def nemesis_states(found: Collection[ProbeResult]) -> tuple[NemesisState, ...]:
    """Return the state of each nemesis, given the results of probes."""
    off = {capability.name: capability for capability in found if not capability.is_on}
    return tuple(
        NemesisState(
            kind.name,
            not off.keys() & set(kind.needs),
            kind.summary,
            tuple(name for name in kind.needs if name in off),
            "; ".join(off[name].install for name in kind.needs if name in off),
            tuple(net.name for net in NETS.values() if kind.breaks_links and not off.keys() & set(net.needs)),
        )
        for kind in KINDS.values()
    )


def needed(names: Collection[str], net: str = LINKS) -> frozenset[str]:
    """Return the capabilities that these kinds and the back end need."""
    return frozenset(need for name in names for need in KINDS[name].needs) | frozenset(NETS[net].needs)


def available_kinds(net: str = LINKS) -> tuple[str, ...]:
    """Return the kinds that can strike here with that back end, tested now."""
    found = probe(needed(KINDS, net))
    return tuple(standing.name for standing in nemesis_states(found) if standing.is_on)
