"""Controllers and brokers as their processes run them, all in one trio loop, with a network in memory and inline disks.

Theory of operation. A node has an address, files (a simulated file system) and lives (`life.py`). A life is everything that one
process has: driver, controller or broker, services, tasks in a nursery of its own. A kill first disconnects the node from network
and disk, so that no byte leaves it and no file changes while its tasks unwind, and then cancels the life. A start begins the next
life on the same files after the last one has ended. A life that ends by an exception of its own is noted with that error.

A paused node does nothing at all: its tasks are held (`held_tasks.py`) until the node is resumed or killed, while the network
delivers messages to it. The voters are in the log, and a disk can be exchanged for an empty one.

Clients call the services directly (`nodes.py`). A call takes time each way, and breaks if the node dies during the call. Log
directories of brokers are in a directory of the run, and watched (`log_dirs.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import ClusterUnreachable
from kraftlab.client.errors import api_error
from kraftlab.common.causes import first_cause
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.common.uuids import Uuid, to_text
from kraftlab.config import meta_properties
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.config.models import BrokerConfig, ControllerConfig, build
from kraftlab.lab.cluster_plan import FIRST_CONTROLLER_ID
from kraftlab.lab.links.shape import Cut, LinkShape
from kraftlab.quorum.core.messages import LeaderView
from kraftlab.quorum.core.types import Voter, VoterSet
from kraftlab.quorum.driver.environment import Environment
from kraftlab.quorum.storage.bootstrap import write_bootstrap
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import Call
from kraftlab.wire.transport import PeerError, PeerIdentity, PeerPool, PeerUnreachable

from ..consensus.simulated_file_system import SimulatedFileSystem
from ..metadata.admin_network import PRINCIPAL, NoResponse
from .clock import MachineClocks
from .committed import CommittedTail
from .held_tasks import HeldTasks
from .inline_disk import InlineDisk, Medium
from .life import Life
from .log_dirs import LogDirDisks
from .machine import SHOWN, WALL_S
from .memory_network import MemoryNetwork, Pair, Place
from .nodes import RuntimeBroker, RuntimeController, RuntimeNode
from .replica_damage import needed_for

HOST = "127.0.0.1"
GRPC_PORT = 20_000
"""The port of node 0. No process listens there."""
CONTROLLER = "CONTROLLER"
CLIENT = -1
"""Node id of clients of the peer protocol. No fault strikes their links."""
LOOK_S = 0.05
LEFT_WITHIN_S = 6.0
"""Time for the controllers to replace a broker."""
LOG_DIRS = 2
"""Log directories of each broker."""
CHANGE_TIMEOUT_MS = 5_000
GRACE_S = 0.5
"""Time that an operator waits for the answer beyond the node's own deadline."""

C = TypeVar("C", ControllerConfig, BrokerConfig)
Chance = Callable[[str], random.Random]
Replica = tuple[str, int]
"""Topic and partition."""


class RuntimeCluster:
    """The nodes, the faults that can strike them, and calls to them. `chance` makes the generator of a name; `properties` are
    server.properties of all nodes. `held` holds tasks of the current `trio.run`. The task `run` must run all the time.
    """

    def __init__(
        self, controllers: int, brokers: int, properties: Mapping[str, str], chance: Chance, held: HeldTasks, directory: Path
    ) -> None:
        self.controller_ids = tuple(range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + controllers))
        self.broker_ids = tuple(range(brokers))
        self.node_ids = (*self.controller_ids, *self.broker_ids)
        self._chance, self._held, self.directory = chance, held, directory
        self._properties = dict(properties)
        self._ids = chance("ids")
        self.cluster_id = to_text(self._new_id())
        self._peer_at = {node: Endpoint(HOST, 10_000 + node) for node in self.node_ids}
        self.network = MemoryNetwork({at: node for node, at in self._peer_at.items()}, chance)
        self.clocks = {node: MachineClocks() for node in self.node_ids}
        self._files: dict[int, SimulatedFileSystem] = {}
        self._directories: dict[int, MetaProperties] = {}
        self._disks_made = 0
        for node in self.node_ids:
            self._put_disk(node)
        self._format()
        self.log_dir_disks = LogDirDisks({broker: self.directory / self._name(broker) for broker in self.broker_ids}, chance)
        self._lives: dict[int, Life] = {}
        self._operator = chance("operator")
        self._resumed = trio.Event()
        """Set when a paused node is resumed or killed."""
        self.exits: list[tuple[float, int, str]] = []
        """(time, node, error) of each node that ended by itself."""
        self.committed = CommittedTail()

    def _new_id(self) -> Uuid:
        return b"\x01" + self._ids.randbytes(15)

    def _put_disk(self, node_id: int) -> None:
        """Give the node an empty disk with a new id."""
        self._disks_made += 1
        self._files[node_id] = SimulatedFileSystem(self._chance(f"files {node_id} {self._disks_made}"))
        self._directories[node_id] = MetaProperties(self.cluster_id, node_id, self._new_id())

    def _format(self) -> None:
        """Make all controllers the first voters, and the log directories of brokers."""
        voters = VoterSet.of([self._voter(node) for node in self.controller_ids])
        for node in self.controller_ids:
            write_bootstrap(self._files[node], str(self.metadata_dir(node)), self.cluster_id, voters)
        for broker in self.broker_ids:
            for path in self.log_dirs(broker):
                path.mkdir(parents=True)
                meta_properties.write(path, MetaProperties(self.cluster_id, broker, self._new_id()))

    def _voter(self, node_id: int) -> Voter:
        return Voter(ReplicaKey(node_id, self._directories[node_id].directory_id), {CONTROLLER: self._peer_at[node_id]})

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run all nodes until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self.network.alarms.run)
            place = Place(self.network, CLIENT, self._chance("clients"))
            self._clients = PeerPool(self._nursery, PeerIdentity(self.cluster_id, 0, ReplicaKey(CLIENT)), place)
            for node in self.node_ids:
                self.start_node(node)
            task_status.started()

    # -- faults --------------------------------------------------------------------------------------------------------

    def pid(self, node_id: int) -> int | None:
        """Number of the node's life, None if the node is down."""
        life = self._lives.get(node_id)
        return life.number if life is not None and not life.is_over else None

    def start_node(self, node_id: int) -> None:
        before = self._lives.get(node_id)
        number = 0 if before is None else before.number + 1
        place = Place(self.network, node_id, self._chance(f"pauses {node_id} {number}"))
        files = self._files[node_id]
        disks = [InlineDisk(self._chance(f"disk {node_id} {number}"), files)]
        clock = self.clocks[node_id]
        clock.boot()
        environment = Environment(place, disks[0], self._chance(f"node {node_id} {number}"), clock)
        made = self._directories[node_id], environment, files, partial(self.committed.add, node_id)
        node: RuntimeNode
        if node_id in self.controller_ids:
            node = RuntimeController(self._build(node_id, "controller", ControllerConfig), *made)
        else:
            disks.append(InlineDisk(self._chance(f"log directories {node_id} {number}"), self.log_dir_disks.by_broker[node_id]))
            node = RuntimeBroker(self._build(node_id, "broker", BrokerConfig), *made, disks[1])
        life = self._lives[node_id] = Life(node, place, self.media(node_id), disks, number)
        life.context.run(WALL_S.set, clock.wall_s)
        life.context.run(self._nursery.start_soon, self._live, node_id, life, before)

    def kill_node(self, node_id: int) -> None:
        life = self._lives[node_id]
        life.kill()
        if node_id in self.broker_ids:
            self.log_dir_disks.by_broker[node_id].is_dead = True
        self._release(life)
        life.break_calls()

    def pause_node(self, node_id: int) -> None:
        self._held.hold(self._lives[node_id])

    def resume_node(self, node_id: int) -> None:
        self._release(self._lives[node_id])

    def _release(self, life: Life) -> None:
        self._held.release(life)
        self._resumed.set()
        self._resumed = trio.Event()

    def cut_all(self, links: list[Pair], *, reset: bool = False) -> None:
        self.network.cut(links, Cut.RESET if reset else Cut.HOLD)

    def heal_links(self, links: list[Pair], *, drop: bool = False) -> None:
        self.network.heal(links, drop=drop)

    def shape_links(self, links: list[Pair], shape: LinkShape) -> None:
        self.network.shape(links, shape)

    def heal_all(self) -> None:
        """Heal all links, resume paused nodes, and start nodes that are down."""
        self.network.heal([(source, target) for source in self.node_ids for target in self.node_ids])
        for node in self.node_ids:
            self.resume_node(node)
            self.restart_degraded(node)
            if self.pid(node) is None:
                self.start_node(node)

    def restart_degraded(self, node_id: int) -> None:
        """Restart a broker that runs without one of its log directories."""
        node = self._lives[node_id].node
        if self.pid(node_id) is not None and isinstance(node, RuntimeBroker) and node.lacks_directories:
            self.kill_node(node_id)
            self.start_node(node_id)

    def metadata_dir(self, node_id: int) -> Path:
        """Return a directory of the simulated file system."""
        return Path(f"/shell/{self._name(node_id)}/metadata")

    def log_dirs(self, broker_id: int) -> tuple[Path, ...]:
        """Return the broker's log directories, which are directories of this machine."""
        return tuple(self.directory / self._name(broker_id) / f"d{number}" for number in range(LOG_DIRS))

    def _name(self, node_id: int) -> str:
        return f"{'broker' if node_id in self.broker_ids else 'controller'}-{node_id}"

    def files(self, node_id: int) -> SimulatedFileSystem:
        """Return the file system on the node's current disk."""
        return self._files[node_id]

    def media(self, node_id: int) -> Sequence[Medium]:
        """Return all current disks of the node."""
        return (self._files[node_id], *([self.log_dir_disks.by_broker[node_id]] if node_id in self.broker_ids else []))

    def disks(self, node_id: int) -> Sequence[InlineDisk]:
        """Return the workers on those disks in the node's newest life."""
        return self._lives[node_id].disks

    async def leave(self, node_id: int, timeout_ms: int) -> None:
        """Make the voter with that id an observer. ApiError, ClusterUnreachable."""
        voters = await self.ask_leader("DescribeQuorum", pb.DescribeQuorumRequest(), timeout_ms)
        directories = {voter.replica_id: voter.replica_directory_id for voter in voters.current_voters}
        removed = pb.RemoveRaftVoterRequest(
            voter_id=node_id, voter_directory_id=directories.get(node_id, to_text(self._directories[node_id].directory_id))
        )
        await self.ask_leader("RemoveRaftVoter", removed, timeout_ms)

    async def join(self, node_id: int, timeout_ms: int) -> None:
        """Make a running controller a voter. ApiError, ClusterUnreachable."""
        voter = self._voter(node_id)
        listeners = [pb.QuorumEndpoint(name=name, host=at.host, port=at.port) for name, at in voter.endpoints.items()]
        added = pb.AddRaftVoterRequest(voter_id=node_id, voter_directory_id=to_text(voter.key.directory_id), listeners=listeners)
        await self.ask_leader("AddRaftVoter", added, timeout_ms)

    def wipe_controller(self, node_id: int) -> None:
        """Replace the disk of a controller that is down by an empty one with another directory id."""
        self._put_disk(node_id)

    async def until_ended(self, node_id: int) -> None:
        """Wait until a killed node has ended completely."""
        await self._lives[node_id].ended.wait()

    async def until_not_needed(self, broker_id: int) -> str:
        """Wait until no partition depends on the stopped broker; return one that still does after `LEFT_WITHIN_S`, or ""."""
        await self.until_ended(broker_id)
        deadline = trio.current_time() + LEFT_WITHIN_S
        while True:
            newest = [life.node.controller.committed.image for life in self._controllers_up().values()]
            newest = [image for image in newest if image.provenance.offset >= self.committed.end - 1]
            needed = needed_for(newest[0], broker_id) if newest else "all, as long as no controller knows the committed image"
            if not needed or trio.current_time() >= deadline:
                return needed
            await trio.sleep(LOOK_S)

    # -- lives ---------------------------------------------------------------------------------------------------------

    def _build(self, node_id: int, role: str, kind: type[C]) -> C:
        own = "CONTROLLER" if role == "controller" else "PEER"
        values = {
            "process.roles": role,
            "node.id": str(node_id),
            "controller.quorum.bootstrap.servers": ",".join(str(self._peer_at[node]) for node in self.controller_ids),
            "listeners": f"{own}://{self._peer_at[node_id]},GRPC://{Endpoint(HOST, GRPC_PORT + node_id)}",
            "metadata.log.dir": str(self.metadata_dir(node_id)),
        }
        if role == "broker":
            values["log.dirs"] = ",".join(map(str, self.log_dirs(node_id)))
        return build(values | self._properties, self._name(node_id), role, kind)

    async def _live(self, node_id: int, life: Life, before: Life | None) -> None:
        if before is not None:
            await before.ended.wait()
        try:
            await life.run()
        except Exception as error:
            if not life.is_killed:
                self.exits.append((trio.current_time(), node_id, last_words(error)))
        finally:
            life.ended.set()

    def _alive(self, node_id: int) -> Life | None:
        """Return the running life of a node, None if it is down or not yet open to clients."""
        life = self._lives.get(node_id)
        return life if life is not None and life.is_up and not life.is_over else None

    def up(self) -> dict[int, RuntimeNode]:
        """Return the nodes that run and are not paused."""
        found = {node: self._alive(node) for node in self.node_ids}
        return {node: life.node for node, life in found.items() if life is not None and life not in self._held}

    def _controllers_up(self) -> dict[int, RuntimeController]:
        return {node: life for node, life in self.up().items() if isinstance(life, RuntimeController)}

    # -- leader and voters ---------------------------------------------------------------------------------------------

    def leader(self) -> LeaderView | None:
        """Return the leader of the highest epoch that a running controller knows, None if the leader is unknown."""
        views = [life.driver.leader for life in self._controllers_up().values()]
        return max((view for view in views if view.leader_id >= 0), key=lambda view: view.epoch, default=None)

    def voters(self) -> dict[int, frozenset[int]]:
        """Return the voters that each running controller knows."""
        described = {node: life.driver.describe() for node, life in self._controllers_up().items()}
        return {node: frozenset(voter.node_id for voter in description.voters) for node, description in described.items()}

    def lacking(self) -> str:
        """Return the reason why the cluster is not ready, "" if it is."""
        up = self.up()
        down = [node for node in self.node_ids if node not in up]
        if down:
            return f"nodes {down} are down"
        running = self._controllers_up()
        views = {(life.driver.leader.leader_id, life.driver.leader.epoch) for life in running.values()}
        active = [life for life in running.values() if life.node.controller.is_active]
        if len(views) != 1 or len(active) != 1:
            return f"no leader that all follow: {sorted(views)}"
        committed = active[0].driver.high_watermark
        late = [node for node, life in running.items() if life.node.controller.applied_offset < committed - 1]
        if late:
            return f"controllers {late} have not applied all committed batches"
        registered = active[0].node.controller.committed.image.cluster.brokers
        brokers = {node: life for node, life in up.items() if isinstance(life, RuntimeBroker)}
        missing = [
            node for node, life in brokers.items() if not life.is_running or node not in registered or registered[node].fenced
        ]
        return f"brokers {missing} do not serve" if missing else ""

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def ask(self, chance: random.Random, node_id: int, api: str, request: Any, patience_s: float) -> Any:
        """Send a copy of the request to a node and return the response. NoResponse. Paths of log directories begin with `SHOWN`,
        so that they are the same in every run.
        """
        copied: Any = METHODS[api].request.FromString(request.SerializeToString())
        if api == "AlterReplicaLogDirs":
            for wanted in copied.dirs:
                wanted.path = wanted.path.replace(SHOWN, str(self.directory), 1)
        call = Call(api, copied, PRINCIPAL)
        there_s, back_s = (chance.choice((0.0002, 0.0005, 0.002)) * chance.uniform(0.5, 1.5) for _ in range(2))
        with trio.move_on_after(patience_s):
            await trio.sleep(there_s)
            while self._lives.get(node_id) in self._held:
                await self._resumed.wait()
            life = self._alive(node_id)
            if life is None:
                raise NoResponse("UNAVAILABLE", f"connection refused by node {node_id}", was_sent=False)
            response: Any = await life.serve(call)
            if response is None:
                raise NoResponse("UNAVAILABLE", f"node {node_id} has broken the connection", was_sent=True)
            if api == "DescribeLogDirs":
                for result in response.results:
                    result.log_dir = result.log_dir.replace(str(self.directory), SHOWN, 1)
            await trio.sleep(back_s)
            return response
        raise NoResponse("DEADLINE_EXCEEDED", f"no answer within {patience_s:g} s", was_sent=True)

    async def ask_peer(self, at: Endpoint, api: int, body: bytes, timeout_ms: int) -> memoryview:
        """Send a request of the peer protocol and return the answer. OSError, ApiError."""
        try:
            return await self._clients.request(at, api, body, timeout_ms=timeout_ms)
        except PeerUnreachable as error:
            raise ConnectionRefusedError(str(error)) if error.refused else error from None
        except PeerError as error:
            raise api_error(error.code, error.message) from None

    async def described(self, broker: int) -> Sequence[object]:
        """Results of DescribeLogDirs. ApiError, ClusterUnreachable."""
        response = await self._ask_one(broker, "DescribeLogDirs", pb.DescribeLogDirsRequest(), CHANGE_TIMEOUT_MS)
        return tuple(response.results)

    async def moved(self, broker: int, paths: Mapping[Replica, str]) -> None:
        """Send AlterReplicaLogDirs with the directory of each replica. ApiError, ClusterUnreachable."""
        dirs = [
            pb.AlterReplicaLogDir(path=path, topics=[pb.AlterReplicaLogDirTopic(name=topic, partitions=[index])])
            for (topic, index), path in paths.items()
        ]
        await self._ask_one(broker, "AlterReplicaLogDirs", pb.AlterReplicaLogDirsRequest(dirs=dirs), CHANGE_TIMEOUT_MS)

    async def ask_leader(self, api: str, request: object, timeout_ms: int) -> Any:
        """Wait for a leader and return its answer. ApiError, ClusterUnreachable."""
        deadline = trio.current_time() + timeout_ms / 1000
        while True:
            await trio.lowlevel.checkpoint()
            leader = self.leader()
            is_late = trio.current_time() >= deadline
            try:
                if leader is not None:
                    return await self._ask_one(leader.leader_id, api, request, timeout_ms)
            except ApiError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER or is_late:
                    raise
            if is_late:
                raise ClusterUnreachable(f"no controller named a leader within {timeout_ms} ms")
            await trio.sleep(LOOK_S)

    async def _ask_one(self, node_id: int, api: str, request: Any, timeout_ms: int) -> Any:
        request.header.timeout_ms, request.header.cluster_id = timeout_ms, self.cluster_id
        try:
            response = await self.ask(self._operator, node_id, api, request, timeout_ms / 1000 + GRACE_S)
        except NoResponse as error:
            raise ClusterUnreachable(str(error)) from error
        header = response.header
        if header.error_code:
            raise api_error(header.error_code, header.error_message)
        return response


def last_words(error: BaseException) -> str:
    """Return the error that ended a node, as its process would have reported it."""
    cause = first_cause(error)
    return f"{type(cause).__name__}: {cause}"
