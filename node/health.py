"""Readiness of a node: the one answer of /readyz and of gRPC's health service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kraftlab.metrics.pages import Readiness
from kraftlab.quorum.driver.raft_driver import RaftDriver
from kraftlab.rpc.health import Health

DISK_SILENT_S = 5.0
"""A node is not ready if a flush of its metadata log takes longer."""
BEHIND_MAX = 1000
"""A node that has applied fewer records than are committed by more than this is not ready."""
LEADING, FOLLOWING = "leader", "follower"


class NodeHealth:
    """Health of one node. `applied` returns the offset up to which committed records are applied, `faults` yields why the node
    cannot play its role. Asked on the node's event loop.
    """

    def __init__(self, driver: RaftDriver, applied: Callable[[], int], faults: Callable[[], Iterable[str]]) -> None:
        self._driver = driver
        self._applied = applied
        self._faults = faults
        self._is_stopping = False

    def stop(self) -> None:
        """Note that the node begins to stop: it is neither ready nor serving from now on."""
        self._is_stopping = True

    def readiness(self) -> Readiness:
        """Return what /readyz says: true if nothing is missing, and the node's place in the quorum."""
        driver, applied_offset = self._driver, self._applied()
        missing = ["the node is stopping"] if self._is_stopping else [*faults_of(driver, applied_offset), *self._faults()]
        facts: dict[str, object] = {"offset": applied_offset, "missing": missing}
        if driver.is_running:
            core = driver.statistics().core
            facts |= {"state": core.state, "epoch": core.epoch, "leader": core.leader_id, "high_watermark": core.high_watermark}
        return not missing, facts

    def present(self) -> Health:
        """Return what gRPC's health service says."""
        return Health(is_serving=not self._is_stopping, is_ready=self.readiness()[0])


def faults_of(driver: RaftDriver, applied_offset: int) -> Iterator[str]:
    """Yield the reasons why a node does not take part in the quorum."""
    if not driver.is_running:
        yield "the metadata log is being opened"
        return
    statistics = driver.statistics()
    core = statistics.core
    if core.state not in (LEADING, FOLLOWING):
        yield f"no leader of the quorum answers; this node is {core.state}"
    if core.is_repairing:
        yield "the metadata log is being repaired"
    behind = core.high_watermark - applied_offset
    if core.high_watermark < 0 or behind > BEHIND_MAX:
        yield f"{max(behind, 0)} committed records are not applied yet"
    if statistics.disk_busy_s > DISK_SILENT_S:
        yield f"the disk of the metadata log has not answered for {statistics.disk_busy_s:.0f} s"
