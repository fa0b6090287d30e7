"""The canary: a real node with fsyncs that do nothing, and a loss of its power. A harness that finds nothing wrong is blind.

Theory of operation. This bug is not in the code but below it: each fsync returns at once, and the data stay in memory. A quorum
of one controller, on a disk of its own, works for clients; then the disk loses its power (ext4 on a loop device that is shut
down), and the node starts again on the remaining data. The rest is a run of `chaos test`, with its clients, checkers and
verdicts: acknowledged writes are gone. Without the bug the same loss of power does no harm.

Fsyncs are disabled from outside, while clients work, by one of two means: a library that is loaded into all nodes before libc
(libeatmydata, or another one in `library`), or strace, which lets the calls return 0 without carrying them out. Data from before
the clients are made durable first, so only the clients' writes can be lost.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from random import Random
from typing import NamedTuple
from unittest import mock

from kraftlab.common.extras import not_installed

from ..fault_plan import Action, FaultPlan
from ..faults.capabilities import probe
from ..faults.cluster_under_faults import ClusterUnderFaults, in_thread
from ..faults.errors import CannotStrike
from ..faults.kind import Draft, Hit, Kind, Shape
from ..faults.kinds import KINDS
from ..faults.strace import SYNCS, kept_injected
from ..runs import Trial, run_test
from ..verdicts import Verdict
from ..workload import Options
from ..worlds.world import Quiet

EATMYDATA, STRACE, POWER = "eatmydata", "strace", "power"
IGNORED = "syncs-ignored"
PRELOAD = "LD_PRELOAD"
OPTIONS = Options(seed="1", time_s=4, rate=60, concurrency=4, controllers=1, brokers=1)
_POWER_LOST_MS, _DARK_MS = 2_500, 500


class Means(NamedTuple):
    """The means to disable fsyncs: `library`, or strace if it is "". `why` names what the machine lacks, "" if nothing."""

    library: str = ""
    why: str = ""


class CanaryRun(NamedTuple):
    """The result of a canary: the invalid verdicts, those on safety first, and the number of acknowledged operations."""

    wrong: tuple[Verdict, ...]
    acknowledged: int


def means() -> Means:
    """Test what this machine has; prefer libeatmydata."""
    if find_spec("pyarrow") is None:
        return Means(why=not_installed("pyarrow, which keeps runs,", "chaos"))
    found = {row.name: row for row in probe((POWER, EATMYDATA, STRACE))}
    lacking = [found[POWER]] if not found[POWER].is_on else []
    if not found[EATMYDATA].is_on and not found[STRACE].is_on:
        lacking += [found[EATMYDATA], found[STRACE]]
    if lacking:
        return Means(why="; ".join(f"{row.name}: {row.detail}; {row.install}" for row in lacking))
    return Means(found[EATMYDATA].detail if found[EATMYDATA].is_on else "")


def run_canary(library: str, *, does_nothing: bool = True) -> CanaryRun:
    """Run the canary. `does_nothing` False: its fsyncs work. WorldFailed, ClusterError."""
    actions = [Action(at_ms=_POWER_LOST_MS, kind="power-loss", target="controllers", for_ms=_DARK_MS, number=1)]
    if does_nothing:
        actions.insert(0, Action(at_ms=0, kind=IGNORED, target="controllers", for_ms=int(OPTIONS.time_s * 1000)))
    plan = FaultPlan(seed=OPTIONS.seed, actions=tuple(actions))
    trial = Trial("registers", "real", (), OPTIONS, plan=plan)
    fault = _synced_once if library else _not_carried_out
    kind = Kind(IGNORED, "fsyncs do nothing", _never, fault, needs=() if library else (STRACE,))
    preloaded = ":".join(filter(None, (library, os.environ.get(PRELOAD))))
    with (
        tempfile.TemporaryDirectory(prefix="canary-") as store,
        mock.patch.dict(KINDS, {IGNORED: kind}),
        mock.patch.dict(os.environ, {PRELOAD: preloaded} if library and does_nothing else {}),
    ):
        tried = run_test(trial, store, Quiet())
    failed = [strike for strike in tried.run.strikes if strike.error]
    if failed:
        raise CannotStrike(f"{failed[0].kind}: {failed[0].error}")
    wrong = [verdict for verdict in tried.verdicts if verdict.valid is False]
    return CanaryRun(tuple(sorted(wrong, key=lambda verdict: verdict.kind != "safety")), tried.run.history.counts()["ok"])


def _never(random: Random, shape: Shape) -> list[Draft]:
    """Draw nothing: the kind of fault is for the canary's own plan."""
    return []


@asynccontextmanager
async def _not_carried_out(victim: ClusterUnderFaults, hit: Hit) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for node in hit.nodes:
            pid = victim.cluster.pid(node)
            await stack.enter_async_context(kept_injected(pid, [f"{SYNCS}:retval=0"], victim.ledger))
        hit.detail = "by strace"
        yield


@asynccontextmanager
async def _synced_once(victim: ClusterUnderFaults, hit: Hit) -> AsyncIterator[None]:
    """Make durable what the nodes have written so far: they have not synced anything since they started."""
    for node in hit.nodes:
        await in_thread(partial(_sync, victim.cluster.metadata_dir(node)))
    hit.detail = f"by {os.environ[PRELOAD]}"
    yield


def _sync(path: os.PathLike[str]) -> None:
    """Sync the file system from this process, which has libc's own calls."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), "syncfs failed", str(path))
    finally:
        os.close(descriptor)
