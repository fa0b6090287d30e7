"""A leader that dies on a real machine: five controllers as processes, and the time until the others have a leader.

Parameters. LocalCluster on loopback with the defaults: fetch timeout 600 to 750 ms, pre-votes. The leader gets SIGKILL, and then
its kernel refuses connections, or SIGSTOP, and then it is silent. Small: 3 trials of each. Full: 20.
"""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING

from .experiment import Estimate, Experiment, Figure, Row, Rows, Size, Trial, column, trial
from .plots import Axis, cdf
from .statistics import median_of, worst_of

if TYPE_CHECKING:
    from kraftlab.client import AdminClient

KILLED, STOPPED = "SIGKILL", "SIGSTOP"
TRIALS = {"small": 3, "full": 20}
CONTROLLERS = 5
WITHIN_S = 30.0
ASK_TIMEOUT_MS = 50
"""Time for one answer. It is also how far off a time can be: the client asks the silent leader now and then."""


def trials(size: Size, seed: int) -> list[Trial]:
    """Return the trials of both signals in turn."""
    return [trial(line, number, seed, controllers=CONTROLLERS) for number in range(TRIALS[size]) for line in (KILLED, STOPPED)]


def run_trial(of: Trial) -> list[Row]:
    """Start a cluster, take its leader away, and ask the others who leads."""
    from kraftlab.lab import LocalCluster

    with (
        tempfile.TemporaryDirectory(prefix="kraftlab-experiment-") as directory,
        LocalCluster(directory, int(of.parameters["controllers"]), 0, 1) as cluster,
        cluster.admin(timeout_ms=ASK_TIMEOUT_MS) as client,
    ):
        old, epoch = _leader(client, 0)
        began_s = time.perf_counter()
        (cluster.kill_node if of.line == KILLED else cluster.pause_node)(old)
        new, _ = _leader(client, epoch)
        ms = (time.perf_counter() - began_s) * 1000
        cluster.kill()
    return [{"ms": ms, "old": old, "new": new}]


def _leader(client: AdminClient, after_epoch: int) -> tuple[int, int]:
    """Return the leader of an epoch after that one, and its epoch."""
    from kraftlab.client import ClusterUnreachable
    from kraftlab.common.errors import ApiError

    deadline_s = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline_s:
        try:
            quorum = client.describe_quorum()
        except (ApiError, ClusterUnreachable):
            continue
        if quorum.leader_id is not None and quorum.leader_epoch > after_epoch:
            return quorum.leader_id, quorum.leader_epoch
    raise TimeoutError(f"no controller led an epoch after {after_epoch} within {WITHIN_S:g} s")


def figures(rows: Rows) -> list[Figure]:
    """Return the distributions."""
    plot = cdf(
        Axis("time until a client knows the next leader (ms)", 10, 10_000, is_log=True),
        [(name, column(rows, "ms", name)) for name in (KILLED, STOPPED)],
    )
    return [Figure("A leader that dies on a real machine", plot, "Includes the client's search for a controller that answers.")]


def measured(rows: Rows) -> dict[str, Estimate]:
    """Return medians and maxima in ms."""
    found: dict[str, Estimate] = {}
    for name in (KILLED, STOPPED):
        found |= {
            f"{name}: median, ms": median_of(column(rows, "ms", name)),
            f"{name}: worst, ms": worst_of(column(rows, "ms", name)),
        }
    return found


def remarks(rows: Rows) -> list[str]:
    """Return the comparison with virtual time."""
    ours = {name: f"{estimate.value:,.0f} ms" for name, estimate in measured(rows).items()}
    return [
        "The thesis measured other timeouts, so none of its numbers stands beside these. leader-crash has the same defaults in "
        "virtual time.",
        f"A killed leader costs {ours[KILLED + ': median, ms']}, a silent one {ours[STOPPED + ': median, ms']}: followers learn "
        "of the first from refused connections, and of the second from their timers alone.",
    ]


EXPERIMENT = Experiment(
    name="leader-kill",
    question="How long are real processes without a leader, if it is killed or silent?",
    method="Five controllers on loopback, a new cluster for each trial. The leader gets a signal, and a client asks who leads "
    "until a controller names the leader of a later epoch.",
    source="own measurement, beside D. Ongaro's thesis (2014)",
    published=(),
    trials=trials,
    run_trial=run_trial,
    figures=figures,
    measured=measured,
    remarks=remarks,
    serial=True,
)
