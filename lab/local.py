"""A cluster of real processes on this machine: start, break, restart, stop.

Theory of operation. Nodes are forked from a server that has imported their code (`fork_server.py`). Each node has a session of
its own, so that Ctrl-C in a terminal reaches only the parent, which then stops brokers first (they hand over their leaderships
while controllers run). When the parent ends, in whatever way, the server stops all nodes: a kill -9 of the parent leaves no
orphans. One lock per directory keeps a second parent out; another lock, which nodes hold until the last has ended, lets the next
parent wait for them. A cluster is ready when a client sees a leader and every broker unfenced.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.health import Finding, look
from kraftlab.client.security import ClientSecurity
from kraftlab.common.errors import ApiError
from kraftlab.common.uuids import LOST, to_text
from kraftlab.config.directories import check_no_comma
from kraftlab.config.errors import ConfigError
from kraftlab.config.force_standalone import forcing
from kraftlab.config.initial_voters import own_voter
from kraftlab.config.models import load_controller

from . import credentials, layout
from .cluster_plan import ClusterError, ClusterPlan, NodePlan, client_properties
from .doubts import all_in_doubt
from .failing_directories import FailingDirectories
from .faults.failing_calls import FailingCalls
from .links.introduction import introduction
from .locking import lock, lock_of_nodes
from .node_disks import NodeDisks
from .ports import PortClaims
from .powered_disk import PoweredDisk
from .processes import ForkServerProcess, NodeProcess
from .proxied import ProxiedLinks
from .steered_clock import ClockFile

if TYPE_CHECKING:
    from .links.network import Network

_POLL_S = 0.02
HEALTH_TIMEOUT_MS = 2000
"""Time limit of each call about the cluster's health."""
_STOP_TIMEOUT_S = 30.0
"""Longer than a session: a broker may wait to stop until the controller has fenced another that does not answer."""


class _LogLine(msgspec.Struct):
    """The field of a line of JSON that people read."""

    message: str


_decode_line = msgspec.json.Decoder(_LogLine).decode


@dataclass(slots=True)
class _RunningNode:
    """A node's process, the size of its log file when the process began, and True once the process was seen to serve."""

    process: NodeProcess
    log_offset: int
    has_served: bool = False


class LocalCluster(ProxiedLinks):
    """Controllers 3000… and brokers 0… under one directory, which is laid out on first use and found again later.

    `overrides` are keys of server.properties for every node, now and at later starts, until `unset` names them; `say` gets a
    line for each change, and for edits by hand. A new cluster has its voters in the log (KIP-853) unless
    `voters_in_log` is false, and a random id unless one is given. `allow_chaos` puts proxies on the links between nodes, so that
    they can be cut and shaped (random events there follow from `link_seed`), gives each node a clock that can run wrong, and lets
    log directories fail (failing_directories.py). With a `network` the nodes live in it instead of on this machine's loopback
    address, and it cuts and shapes their links; only processes in the network reach them. `own_disks` gives each node of a new
    cluster a disk that can lose its power (root on Linux; node_disks.py). File calls of all nodes fail by the rules of
    `failing_calls`. The first broker serves Kafka clients at `kafka_port`, if given, now and at later starts. Each broker of a
    new cluster has a rack of its own, or one of `racks` in turn. With `secure` all listeners of a new cluster speak TLS, and
    clients log in (credentials.py). Use as a context manager: `with LocalCluster(path) as cluster:` starts all nodes and waits
    until they are ready; leaving it stops them. ClusterError gives the reason and the place of the log.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        controllers: int | None = None,
        brokers: int | None = None,
        log_dirs: int | None = None,
        *,
        overrides: Mapping[str, str] | None = None,
        unset: Collection[str] = (),
        say: Callable[[str], None] = lambda remark: None,
        voters_in_log: bool = True,
        cluster_id: str | None = None,
        allow_chaos: bool = False,
        link_seed: int = 0,
        network: Network | None = None,
        own_disks: bool = False,
        failing_calls: FailingCalls | None = None,
        kafka_port: int | None = None,
        racks: int | None = None,
        secure: bool = False,
    ) -> None:
        super().__init__(link_seed, network)
        try:
            check_no_comma(os.fspath(data_dir))
        except ConfigError as error:
            raise ClusterError(f"cannot use the directory {os.fspath(data_dir)!r}: {error}") from None
        self.directory = Path(data_dir).absolute()
        self._lock = lock(self.directory)
        try:
            self._nodes_lock = lock_of_nodes(self.directory)
        except BaseException:
            self._lock.close()
            raise
        self._claims = PortClaims(self.directory)
        self._given, self._unset, self._say = dict(overrides or {}), tuple(unset), say
        has_own_calls = allow_chaos and failing_calls is None
        self._failing = FailingDirectories(self.directory / "failing-calls" if has_own_calls else None)
        self._environment = (failing_calls or self._failing).environment
        self.fork_server: ForkServerProcess | None = None
        self._disks = NodeDisks(self.directory, self._server, wanted=own_disks)
        self._clocks: dict[int, ClockFile] | None = {} if allow_chaos else None
        """Clocks of started nodes, by node id; None: nodes use this machine's clock."""

        def planned() -> ClusterPlan:
            shape = controllers, brokers, log_dirs
            plan = layout.plan(
                *(self.directory, *shape),
                voters_in_log=voters_in_log,
                cluster_id=cluster_id,
                kafka_port=kafka_port,
                racks=racks,
                secure=secure,
            ).at(self._host)
            return plan.behind_proxies() if allow_chaos and network is None else plan.without_proxies()

        try:
            self.plan: ClusterPlan = self._laid_out(layout.claimed(self._claims, planned))
        except BaseException:
            self._end_server()
            self._release()
            raise
        self._nodes = {node.node_id: node for node in self.plan.nodes}
        self._running: dict[int, _RunningNode] = {}
        self.disk_faults: list[str] = []
        """Lines about directories that could not be used when the cluster was started."""
        self._started_at = time.monotonic()

    def _laid_out(self, plan: ClusterPlan) -> ClusterPlan:
        """Prepare the disks of a plan's nodes."""
        self._disks.mount(plan.nodes)
        plan = layout.write(self.directory, plan, self._given, unset=self._unset, say=self._say)
        self._given, self._unset = {}, ()
        self._disks.sync()
        return plan

    def _server(self) -> ForkServerProcess:
        """The fork server, which is started on first use."""
        if self.fork_server is None:
            self.fork_server = ForkServerProcess([self._nodes_lock.fileno()], self._environment)
        return self.fork_server

    def _end_server(self) -> None:
        if self.fork_server is not None:
            self.fork_server.close()
            self.fork_server = None

    def _release(self) -> None:
        """Release the directory and the ports."""
        try:
            self._disks.unmount()
        finally:
            self._failing.close()
            self._claims.close()
            self._nodes_lock.close()
            self._lock.close()

    # -- properties ----------------------------------------------------------------------------------------------------

    @property
    def disks(self) -> Mapping[int, PoweredDisk]:
        """The disks that can lose their power, by node id."""
        return self._disks.by_node

    @property
    def cluster_id(self) -> str:
        return self.plan.cluster_id

    @property
    def controller_ids(self) -> tuple[int, ...]:
        return tuple(node.node_id for node in self.plan.controllers)

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(node.node_id for node in self.plan.brokers)

    @property
    def bootstrap_servers(self) -> str:
        """Every node's gRPC endpoint, controllers first."""
        return ",".join(str(node.grpc) for node in self.plan.nodes)

    @property
    def kafka_bootstrap_servers(self) -> str:
        """Every broker's listener for Kafka clients."""
        return ",".join(str(node.kafka) for node in self.plan.brokers)

    def node(self, node_id: int) -> NodePlan:
        """The plan of a node; ClusterError if there is none with that id."""
        try:
            return self._nodes[node_id]
        except KeyError:
            known = ",".join(map(str, self._nodes))
            raise ClusterError(f"there is no node {node_id}; nodes are {known}") from None

    @property
    def librdkafka_properties(self) -> dict[str, str]:
        """Properties with which a client of librdkafka (confluent-kafka) logs in as admin, with the password; none for an open
        cluster.
        """
        return credentials.librdkafka_properties(self.directory) if self.plan.secure else {}

    @property
    def kafka_python_options(self) -> dict[str, str]:
        """As `librdkafka_properties`, for the constructors of kafka-python."""
        return credentials.kafka_python_options(self.directory) if self.plan.secure else {}

    def log_dirs(self, broker_id: int) -> tuple[Path, ...]:
        """A broker's log directories."""
        node = self.node(broker_id)
        return tuple(self.directory / node.name / f"d{index}" for index in range(node.log_dirs))

    def metadata_dir(self, node_id: int) -> Path:
        return self.directory / self.node(node_id).name / "metadata"

    def log_path(self, node_id: int) -> Path:
        """The log file of a node's process."""
        return layout.log_path(self.directory, self.node(node_id))

    def pid(self, node_id: int) -> int | None:
        """The process id of a node, None if it does not run."""
        running = self._running.get(node_id)
        return running.process.pid if running is not None and running.process.code is None else None

    def endpoints(self) -> dict[str, object]:
        """Addresses, ids and paths that a person or a script needs to use the cluster, ready for JSON."""
        scheme = "https" if self.plan.secure else "http"
        return {
            "cluster_id": self.cluster_id,
            "data": str(self.directory),
            "kafka_bootstrap_servers": self.kafka_bootstrap_servers,
            "bootstrap_servers": self.bootstrap_servers,
            **({"client_properties": self.librdkafka_properties} if self.plan.secure else {}),
            "nodes": [
                {
                    "id": node.node_id,
                    "role": node.role,
                    "rack": node.rack,
                    "kafka": None if node.kafka is None else str(node.kafka),
                    "grpc": str(node.grpc),
                    "peer": str(node.peer),
                    "metrics": None if node.metrics is None else f"{scheme}://{node.metrics}/metrics",
                    "pid": self.pid(node.node_id),
                    "metadata_dir": str(self.metadata_dir(node.node_id)),
                    "log_dirs": [str(path) for path in self.log_dirs(node.node_id)],
                    "log": str(self.log_path(node.node_id)),
                }
                for node in self.plan.nodes
            ],
        }

    @property
    def security(self) -> ClientSecurity:
        """The security of this cluster's clients: that of client.properties in its directory. Without that file, and with an
        authorizer, a client is a super user, if the nodes' properties have one with a password, otherwise ANONYMOUS. ConfigError.
        """
        file = client_properties(self.directory)
        if file is not None:
            return ClientSecurity.load(file)
        user, password = layout.super_user(self.directory, self.plan.nodes[0]) or (None, "")
        return ClientSecurity(user=user, password=password)

    def admin(self, *, timeout_ms: int = 30_000) -> AdminClient:
        """Make a client of this cluster with its security; the caller closes it."""
        return AdminClient(self.bootstrap_servers, timeout_ms=timeout_ms, cluster_id=self.cluster_id, security=self.security)

    # -- starting --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start every node that does not run. Controllers come first: the quorum elects while brokers still load.

        A node without a usable disk is left out, as `disk_faults` says. ClusterError if that leaves no controller.
        """
        self._started_at = time.monotonic()
        self.disk_faults, blocked = [], set()
        for node in self.plan.nodes:
            if self.pid(node.node_id) is None:
                found = layout.unusable(self.directory, self.plan, node)
                what = f"{node.name} does not start" if found.blocks else f"{node.name} starts without a directory"
                self.disk_faults += [f"{what}: {reason}" for reason in found.reasons.values()]
                if found.blocks:
                    blocked.add(node.node_id)
        if blocked >= set(self.controller_ids):
            raise ClusterError("; ".join(self.disk_faults))
        self._start_nodes([node for node in self.plan.nodes if self.pid(node.node_id) is None and node.node_id not in blocked])

    def start_node(self, node_id: int) -> None:
        """Start one node's process; ClusterError if it runs."""
        node = self.node(node_id)
        if self.pid(node_id) is not None:
            raise ClusterError(f"{node.name} runs already")
        self._start_nodes([node])

    def _start_nodes(self, nodes: list[NodePlan]) -> None:
        self._start_proxies()
        server = self._server()
        begun: dict[int, tuple[int, int]] = {}
        try:
            for node in nodes:
                log = layout.log_path(self.directory, node)
                size = log.stat().st_size if log.exists() else 0
                config = layout.properties_path(self.directory, node)
                namespace = self._network.namespace(node.node_id) if self._network is not None else ""
                clock = self._clock_file(node)
                number = server.begin(
                    *(node.role, str(config), str(log)),
                    namespace=namespace,
                    clock=clock,
                    speaks_tls=self.plan.secure,
                    introduction=introduction(node.node_id) if self.plan.secure and self.links_are_proxied else b"",
                )
                begun[number] = node.node_id, size
            for number, (node_id, size) in tuple(begun.items()):
                self._running[node_id] = _RunningNode(server.collect(number), size)
                del begun[number]
        finally:
            server.give_up(begun)

    def _clock_file(self, node: NodePlan) -> str:
        """Path of a node's clock, "" if it uses this machine's."""
        if self._clocks is None:
            return ""
        if node.node_id not in self._clocks:
            self._clocks[node.node_id] = ClockFile(self.directory / "clocks" / node.name)
        return str(self._clocks[node.node_id].path)

    def wait_ready(self, timeout_s: float = 30.0) -> float:
        """Wait until a controller leads, every running node serves, and brokers are unfenced; return seconds since `start`.
        ClusterError.

        The metadata alone is not enough: brokers that were killed a moment ago, and are only starting, are still unfenced there.
        """
        deadline = time.monotonic() + timeout_s
        state = "no controller answers"
        with self.admin(timeout_ms=1000) as client:
            while True:
                self._raise_if_died()
                try:
                    cluster = client.describe_cluster(include_fenced_brokers=True)
                    unfenced = {broker.broker_id for broker in cluster.brokers if not broker.is_fenced}
                    waiting = [
                        node_id
                        for node_id in list(self._running)
                        if not self.serves(node_id) or (self.node(node_id).role == "broker" and node_id not in unfenced)
                    ]
                    if not waiting and cluster.leader_id is not None:
                        return time.monotonic() - self._started_at
                    state = f"nodes that do not serve yet: {','.join(map(str, waiting))}" if waiting else "no controller leads"
                except (ApiError, ClusterUnreachable) as error:
                    state = str(error)
                if time.monotonic() > deadline:
                    state = "; ".join([state, *self.disk_faults])
                    raise ClusterError(f"the cluster is not ready after {timeout_s:g} s ({state}); see {self.directory / 'logs'}")
                time.sleep(_POLL_S)

    def in_doubt(self) -> tuple[str, ...]:
        """Return a line for each partition of which every replica is kept offline after damage, with the next step."""
        with self.admin() as client:
            return all_in_doubt(client)

    def health(self) -> tuple[Finding, ...] | None:
        """Return what is wrong with the cluster, None if it does not answer."""
        with self.admin() as client:
            try:
                return tuple(look(client, HEALTH_TIMEOUT_MS))
            except (ApiError, ClusterUnreachable):
                return None

    def serves(self, node_id: int) -> bool:
        """Return True if a node's newest process has logged that it is ready, as text or JSON. Its log may be moved later."""
        name = self.node(node_id).name.replace("-", " ")
        running = self._running.get(node_id)
        has_served = running is not None and running.has_served
        has_served = has_served or re.search(rf'[ "]{name} ready: ', self._log_of_newest(node_id)) is not None
        if running is not None:
            running.has_served = has_served
        return has_served

    def _raise_if_died(self) -> None:
        for node_id, code in self.exited().items():
            raise ClusterError(f"{self.node(node_id).name} ended with code {code}: {self.last_words(node_id)}")

    def last_words(self, node_id: int) -> str:
        """The last line that a node's newest process wrote; of a line of JSON its message."""
        lines = self._log_of_newest(node_id).strip().splitlines()
        if not lines:
            return f"its log is empty; see {self.log_path(node_id)}"
        try:
            return _decode_line(lines[-1]).message
        except msgspec.DecodeError:
            return lines[-1]

    def _log_of_newest(self, node_id: int) -> str:
        """Log of a node's newest process."""
        running = self._running.get(node_id)
        try:
            with open(self.log_path(node_id), "rb") as log:
                log.seek(running.log_offset if running is not None else 0)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def exited(self) -> dict[int, int]:
        """Exit codes of started nodes that have ended by themselves."""
        codes = {node_id: running.process.code for node_id, running in list(self._running.items())}
        return {node_id: code for node_id, code in codes.items() if code is not None}

    # -- voters ----------------------------------------------------------------------------------------------------------

    def add_controller(self) -> int:
        """Lay out one more controller, which is not started; return its id. ClusterError if the voters are static."""
        if not self.plan.voters_in_log:
            raise ClusterError(f"{self.directory} was laid out with static voters, which do not change; use a new directory")
        plan = layout.claimed(self._claims, lambda: self.plan.with_controller().at(self._host))
        self.plan = self._laid_out(plan)
        self._nodes = {node.node_id: node for node in self.plan.nodes}
        return self.plan.controllers[-1].node_id

    def join(self, node_id: int, timeout_ms: int = 15_000) -> None:
        """Make a running controller a voter. ApiError, ClusterUnreachable."""
        config = load_controller(layout.properties_path(self.directory, self.node(node_id)))
        voter = own_voter(config)
        with self.admin(timeout_ms=timeout_ms) as client:
            client.describe_quorum()  # finds the leader, so that the request does not go to a node that has just started
            client.add_raft_voter(node_id, to_text(voter.key.directory_id), voter.endpoints)

    def leave(self, node_id: int, timeout_ms: int = 15_000) -> None:
        """Make the voter with that id an observer, whatever its directory id. ApiError, ClusterUnreachable."""
        with self.admin(timeout_ms=timeout_ms) as client:
            voters = {voter.replica_id: voter.replica_directory_id for voter in client.describe_quorum().current_voters}
            client.remove_raft_voter(node_id, voters.get(node_id, to_text(LOST)))

    def wipe_controller(self, node_id: int) -> None:
        """Put an empty disk into a stopped controller: format it again, with another directory id."""
        if self.pid(node_id) is not None:
            raise ClusterError(f"{self.node(node_id).name} runs; stop it first")
        shutil.rmtree(self.metadata_dir(node_id))
        layout.format_node(self.directory, self.plan, self.node(node_id))

    def force_standalone(self, node_id: int) -> None:
        """Make a stopped controller the only voter of the cluster, whatever the others hold. ConfigError."""
        with forcing(load_controller(layout.properties_path(self.directory, self.node(node_id)))) as work:
            work.carry_out()
        self.plan = layout.write(self.directory, self.plan, say=self._say)

    # -- breaking and stopping -------------------------------------------------------------------------------------------

    def kill_node(self, node_id: int) -> None:
        """Kill -9, and wait until the process is gone."""
        self._signal(node_id, signal.SIGKILL)
        self._reap(node_id, _STOP_TIMEOUT_S)

    def lose_power(self, node_ids: Iterable[int]) -> None:
        """Kill these nodes and drop all unsynced writes. ClusterError, with nothing done, if one has no disk of its own."""
        disks = {node_id: self._powered(node_id) for node_id in node_ids}
        try:
            for disk in disks.values():
                disk.lose_power()
        except OSError as error:
            raise ClusterError(f"cannot take the power of {error.filename}: {error.strerror}") from error
        finally:
            for node_id in disks:
                self.kill_node(node_id)

    def restore_power(self, node_id: int) -> None:
        """Mount the node's own disk again, if it has one; the node is not started. ClusterError."""
        disk = self.disks.get(node_id)
        if disk is not None:
            disk.restore_power()

    def _powered(self, node_id: int) -> PoweredDisk:
        disk = self.disks.get(node_id)
        if disk is None:
            raise ClusterError(
                f"{self.node(node_id).name} has no disk of its own that could lose its power; as root, start a new cluster: "
                "kraftlab up --allow-chaos --own-disks --data DIR"
            )
        return disk

    def clock(self, node_id: int) -> ClockFile:
        """The clock of a node that was started. ClusterError if it uses this machine's clock, which all nodes share."""
        if self._clocks is None or node_id not in self._clocks:
            raise ClusterError(
                f"{self.node(node_id).name} uses this machine's clock; start the cluster with allow_chaos "
                "(kraftlab up --allow-chaos)"
            )
        return self._clocks[node_id]

    def fail_directories(self, errors: Mapping[str, int]) -> None:
        """Let these log directories fail with an errno, EIO or ENOSPC, and no others. ClusterError if this cluster cannot."""
        self._failing.fail(errors)

    def pause_node(self, node_id: int) -> None:
        """SIGSTOP: the process keeps its sockets and answers nothing."""
        self._signal(node_id, signal.SIGSTOP)

    def resume_node(self, node_id: int) -> None:
        self._signal(node_id, signal.SIGCONT)

    def stop_node(self, node_id: int, timeout_s: float = _STOP_TIMEOUT_S) -> bool:
        """SIGTERM, then SIGKILL after the timeout. True if the node stopped by itself."""
        self._signal(node_id, signal.SIGTERM)
        return self._reap(node_id, timeout_s)

    def stop(self, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """Stop every node: brokers together, then controllers together."""
        for group in (self.broker_ids, self.controller_ids):
            alive = [node_id for node_id in group if self.pid(node_id) is not None]
            for node_id in alive:
                self._signal(node_id, signal.SIGCONT)
                self._signal(node_id, signal.SIGTERM)
            deadline = time.monotonic() + timeout_s
            for node_id in alive:
                self._reap(node_id, max(deadline - time.monotonic(), 0.1))

    def kill(self) -> None:
        """kill -9 of every node."""
        for node_id in list(self._running):
            self.kill_node(node_id)

    def close(self) -> None:
        """Stop every node and release the directory."""
        try:
            self.stop()
        except BaseException:
            self.kill()
            raise
        finally:
            self._end_server()
            self._close_proxies()
            for clock in (self._clocks or {}).values():
                clock.close()
            self._release()

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        running = self._running.get(node_id)
        if running is not None:
            running.process.signal(number)

    def _reap(self, node_id: int, timeout_s: float) -> bool:
        running = self._running.pop(node_id, None)
        if running is None or running.process.wait(timeout_s):
            return True
        running.process.signal(signal.SIGKILL)
        running.process.wait(_STOP_TIMEOUT_S)
        return False

    def __enter__(self) -> LocalCluster:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
