"""Controllers as their processes run them, all in one trio loop: `ControllerNode` with a network in memory and inline disks.

Theory of operation. A node has an address, files (a simulated file system) and lives. A life is everything of one process:
driver, controller, doors, tasks in a nursery of its own. A kill cancels that after the node has been struck dumb: no byte leaves
it and no file changes while its tasks unwind. A start begins the next life on the same files when the last is over. A life that
ends by an exception of its own has crashed: that is written down with its last words.

A node that stands still (`pause_node`) does nothing at all: its tasks are held (`held_tasks.py`), while the network goes on to
bring it messages, until it goes on or is killed. The voters live in the log, and a disk may be exchanged for an empty one.

Clients call the doors themselves, the same two functions behind which gRPC stands; a call travels for a while each way, and
breaks if the node dies with it in hand. Brokers are stand-ins that no fault strikes: they register and send heartbeats by the
peer protocol, host nothing, and pass calls on, once, to the controller that they believe to lead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import trio
from google.protobuf.message import Message

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import ClusterUnreachable
from kraftlab.cluster.layout import FIRST_CONTROLLER_ID
from kraftlab.cluster.links.shape import Cut, LinkShape
from kraftlab.config.meta_properties import MetaProperties
from kraftlab.config.models import ControllerConfig, build
from kraftlab.controller.doors.waits import TrioWaits
from kraftlab.controller.main import ControllerNode
from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.metadata.features import supported_features
from kraftlab.metadata.peer_rpc import (
    Api,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from kraftlab.metadata.records import Listener
from kraftlab.metadata.uuids import Uuid, to_text
from kraftlab.quorum.core.types import Endpoint, ReplicaKey, Voter, VoterSet
from kraftlab.quorum.driver.outside import Outside
from kraftlab.quorum.driver.transport import PeerError, PeerIdentity, PeerPool, PeerTimeout, PeerUnreachable
from kraftlab.quorum.simulation.simulated_file_system import SimulatedFileSystem
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.quorum.storage.bootstrap import write_bootstrap
from kraftlab.rpc.methods import METHODS
from kraftlab.rpc.server import Call

from ..nemeses.scene import Leads
from .held_tasks import OWNER, HeldTasks
from .inline_disk import InlineDisk
from .memory_network import MemoryNetwork, Pair, Place

STARTED_S = 1_700_000_000.0
"""The wall clock's time when the mock clock's is 0."""
HOST = "127.0.0.1"
GRPC_PORT = 20_000
"""Of node 0; nobody listens there."""
CONTROLLER = "CONTROLLER"
PRINCIPAL = "User:ANONYMOUS"
BEAT_S = 0.5
BROKER_TIMEOUT_MS = 1_000
GRACE_S = 0.5
"""How much longer than a node's own deadline its answer is waited for."""
_LOOK_S = 0.02
_REGISTER_AGAIN = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)

T = TypeVar("T")
Chance = Callable[[str], random.Random]


class Unanswered(Exception):
    """No answer came; `status` as gRPC calls it."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


class _InlineWaits(TrioWaits):
    """Nothing is worked out on a thread."""

    async def aside(self, run: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        return run()


class _Asked:
    """A call that a node has in hand."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.response: Message | None = None

    def answer(self, response: Message | None) -> None:
        if not self.done.is_set():
            self.response = response
            self.done.set()


class _Life:
    """One process. `nursery` is there, and `is_up`, once it answers its peers."""

    def __init__(self, node: ControllerNode, place: Place, files: SimulatedFileSystem, disk: InlineDisk, number: int) -> None:
        self.node, self.place, self.files, self.disk, self.number = node, place, files, disk, number
        self.context: Context = copy_context()
        """What its tasks begin with: they are known by that."""
        self.context.run(OWNER.set, self)
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.is_killed = False
        self.is_up = False
        self.asked: dict[_Asked, None] = {}
        self.nursery: trio.Nursery


class ShellCluster:
    """`nemeses.scene.Cluster`, and what a port and an observer need. `chance` makes the generator of a name; `properties` are of
    server.properties of all nodes. `held` are tasks of the `trio.run` that this is under. Run `run` beside everything.
    """

    def __init__(self, controllers: int, brokers: int, properties: Mapping[str, str], chance: Chance, held: HeldTasks) -> None:
        self.controller_ids = tuple(range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + controllers))
        self.broker_ids: tuple[int, ...] = ()
        """Of those that faults can strike: stand-ins are not."""
        self.stand_in_ids = tuple(range(brokers))
        self._chance, self._held = chance, held
        self._properties = dict(properties)
        self._ids = chance("ids")
        self.cluster_id = to_text(self._new_id())
        self._peer_at = {node: Endpoint(HOST, 10_000 + node) for node in (*self.controller_ids, *self.stand_in_ids)}
        self.network = MemoryNetwork({at: node for node, at in self._peer_at.items()}, chance)
        self._files: dict[int, SimulatedFileSystem] = {}
        self._directories: dict[int, MetaProperties] = {}
        self._disks_made = 0
        for node in self.controller_ids:
            self._put_disk(node)
        self._format()
        self._lives: dict[int, _Life] = {}
        self._operator = chance("operator")
        self._stirred = trio.Event()
        self._controller_of = dict.fromkeys(self.stand_in_ids, self.controller_ids[0])
        self.exits: list[tuple[float, int, str]] = []
        """When nodes ended by themselves, and their last words."""
        self.on_commit: Callable[[int, bytes], None] = lambda node_id, batches: None
        """Hears of whole batches, as they stand in the log of a node that is about to apply them."""

    def _new_id(self) -> Uuid:
        return b"\x01" + self._ids.randbytes(15)

    def _put_disk(self, node_id: int) -> None:
        """An empty disk, which has an id."""
        self._disks_made += 1
        self._files[node_id] = SimulatedFileSystem(self._chance(f"files {node_id} {self._disks_made}"))
        self._directories[node_id] = MetaProperties(self.cluster_id, node_id, self._new_id())

    def _format(self) -> None:
        """All controllers are the first voters."""
        voters = VoterSet.of([self._voter(node) for node in self.controller_ids])
        for node in self.controller_ids:
            write_bootstrap(self._files[node], str(self.metadata_dir(node)), self.cluster_id, voters)

    def _voter(self, node_id: int) -> Voter:
        return Voter(ReplicaKey(node_id, self._directories[node_id].directory_id), {CONTROLLER: self._peer_at[node_id]})

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """All nodes, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self.network.alarms.run)
            for node in self.controller_ids:
                self.start_node(node)
            for broker in self.stand_in_ids:
                self._nursery.start_soon(self._stand_in, broker)
            task_status.started()

    # -- what faults do ------------------------------------------------------------------------------------------------

    def pid(self, node_id: int) -> int | None:
        """The number of the node's life, None if it has none."""
        life = self._lives.get(node_id)
        return life.number if life is not None and not life.scope.cancel_called and not life.ended.is_set() else None

    def start_node(self, node_id: int) -> None:
        before = self._lives.get(node_id)
        number = 0 if before is None else before.number + 1
        place = Place(self.network, node_id, self._chance(f"pauses {node_id} {number}"))
        disk = InlineDisk(self._chance(f"disk {node_id} {number}"), self._files[node_id])
        outside = Outside(place, disk, self._chance(f"node {node_id} {number}"), lambda: STARTED_S + trio.current_time())
        node = ControllerNode(
            self._config(node_id),
            self._directories[node_id],
            outside,
            file_system=self._files[node_id],
            aside=None,
            waits=_InlineWaits(),
        )
        self._listen(node_id, node)
        life = self._lives[node_id] = _Life(node, place, self._files[node_id], disk, number)
        life.context.run(self._nursery.start_soon, self._live, node_id, life, before)

    def _listen(self, node_id: int, node: ControllerNode) -> None:
        apply = node.controller.apply

        async def applied(batches: list[CommittedBatch], high_watermark: int) -> None:
            for batch in batches:
                self.on_commit(node_id, node.driver.committed(batch.base_offset, 1))
            await apply(batches, high_watermark)

        node.controller.apply = applied  # type: ignore[method-assign]

    def kill_node(self, node_id: int) -> None:
        life = self._lives[node_id]
        life.is_killed = True
        life.place.die()
        life.disk.die()
        life.scope.cancel()
        self._release(life)
        for asked in tuple(life.asked):
            asked.answer(None)

    def pause_node(self, node_id: int) -> None:
        self._held.hold(self._lives[node_id])

    def resume_node(self, node_id: int) -> None:
        self._release(self._lives[node_id])

    def _release(self, life: _Life) -> None:
        self._held.release(life)
        self._stirred.set()
        self._stirred = trio.Event()

    def cut_all(self, links: list[Pair], *, reset: bool = False) -> None:
        self.network.cut(links, Cut.RESET if reset else Cut.HOLD)

    def heal_links(self, links: list[Pair], *, drop: bool = False) -> None:
        self.network.heal(links, drop=drop)

    def shape_links(self, links: list[Pair], shape: LinkShape) -> None:
        self.network.shape(links, shape)

    def heal_all(self) -> None:
        """All links, and all nodes that stand still; those that ended are started again."""
        nodes = (*self.controller_ids, *self.stand_in_ids)
        self.network.heal([(source, target) for source in nodes for target in nodes])
        for node in self.controller_ids:
            self.resume_node(node)
            if self.pid(node) is None:
                self.start_node(node)

    def metadata_dir(self, node_id: int) -> Path:
        return Path(f"/shell/controller-{node_id}/metadata")

    def files(self, node_id: int) -> SimulatedFileSystem:
        """What is on the disk that the node has now."""
        return self._files[node_id]

    def disk(self, node_id: int) -> InlineDisk:
        """What works on that in the node's newest life."""
        return self._lives[node_id].disk

    async def leave(self, node_id: int, timeout_ms: int) -> None:
        """Makes the voter with that id an observer. ApiError, ClusterUnreachable."""
        voters = await self.ask_leader("DescribeQuorum", pb.DescribeQuorumRequest(), timeout_ms)
        directories = {voter.replica_id: voter.replica_directory_id for voter in voters.current_voters}
        removed = pb.RemoveRaftVoterRequest(
            voter_id=node_id, voter_directory_id=directories.get(node_id, to_text(self._directories[node_id].directory_id))
        )
        await self.ask_leader("RemoveRaftVoter", removed, timeout_ms)

    async def join(self, node_id: int, timeout_ms: int) -> None:
        """Makes a controller that runs a voter. ApiError, ClusterUnreachable."""
        voter = self._voter(node_id)
        listeners = [pb.QuorumEndpoint(name=name, host=at.host, port=at.port) for name, at in voter.endpoints.items()]
        added = pb.AddRaftVoterRequest(voter_id=node_id, voter_directory_id=to_text(voter.key.directory_id), listeners=listeners)
        await self.ask_leader("AddRaftVoter", added, timeout_ms)

    def wipe_controller(self, node_id: int) -> None:
        """Puts an empty disk into a controller that does not run, with another directory id."""
        self._put_disk(node_id)

    # -- lives ---------------------------------------------------------------------------------------------------------

    def _config(self, node_id: int) -> ControllerConfig:
        values = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "controller.quorum.bootstrap.servers": ",".join(str(self._peer_at[node]) for node in self.controller_ids),
            "listeners": f"CONTROLLER://{self._peer_at[node_id]},GRPC://{Endpoint(HOST, GRPC_PORT + node_id)}",
            "metadata.log.dir": str(self.metadata_dir(node_id)),
        }
        return build(values | self._properties, f"controller-{node_id}", "controller", ControllerConfig)

    async def _live(self, node_id: int, life: _Life, before: _Life | None) -> None:
        if before is not None:
            await before.ended.wait()
        try:
            with life.scope:
                async with trio.open_nursery() as nursery:
                    life.nursery = nursery
                    await life.node.take_part(nursery)
                    life.is_up = True
                    await life.node.controller.failed.wait()
                    raise life.node.controller.failure or RuntimeError("the controller must end, and does not say why")
        except Exception as error:
            if not life.is_killed:
                self.exits.append((trio.current_time(), node_id, last_words(error)))
        finally:
            life.is_up = False
            life.place.die()
            for asked in tuple(life.asked):
                asked.answer(None)
            life.files.crash(power_cut=False)
            life.ended.set()

    def life(self, node_id: int) -> ControllerNode | None:
        """The node as it runs, None if it is down or has only begun to start."""
        life = self._lives.get(node_id)
        return life.node if life is not None and life.is_up and self.pid(node_id) is not None else None

    def up(self) -> dict[int, ControllerNode]:
        """Those that run and do not stand still."""
        found = {node: self.life(node) for node in self.controller_ids if self._lives[node] not in self._held}
        return {node: life for node, life in found.items() if life is not None}

    # -- who leads, and who votes --------------------------------------------------------------------------------------

    async def find_leader(self, above: int | None = None) -> Leads | None:
        await trio.lowlevel.checkpoint()
        views = [life.driver.leader for life in self.up().values()]
        known = [Leads(view.leader_id, view.epoch) for view in views if view.leader_id >= 0]
        return max(known, key=lambda leads: leads.epoch, default=None)

    async def find_voters(self) -> dict[int, frozenset[int]]:
        await trio.lowlevel.checkpoint()
        return {node: frozenset(voter.node_id for voter in life.driver.describe().voters) for node, life in self.up().items()}

    def lacking(self) -> str:
        """What is missing for the cluster to be ready, "" if nothing is."""
        lives = {node: self.life(node) for node in self.controller_ids}
        down = [node for node, life in lives.items() if life is None]
        if down:
            return f"controllers {down} are down"
        running = [life for life in lives.values() if life is not None]
        views = {(life.driver.leader.leader_id, life.driver.leader.epoch) for life in running}
        active = [life for life in running if life.controller.is_active]
        if len(views) != 1 or len(active) != 1:
            return f"no leader that all follow: {sorted(views)}"
        committed = active[0].driver.high_watermark
        behind = [node for node, life in lives.items() if life is not None and life.controller.applied_offset < committed - 1]
        if behind:
            return f"controllers {behind} have not applied what is committed"
        registered = active[0].controller.committed.image.cluster.brokers
        missing = [broker for broker in self.stand_in_ids if broker not in registered or registered[broker].fenced]
        return f"brokers {missing} are not there" if missing else ""

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def ask(self, chance: random.Random, node_id: int, api: str, request: Any, patience_s: float) -> Any:
        """The response of a node to a copy of this request. Unanswered."""
        call = Call(api, METHODS[api].request.FromString(request.SerializeToString()), PRINCIPAL)
        there_s, back_s = (chance.choice((0.0002, 0.0005, 0.002)) * chance.uniform(0.5, 1.5) for _ in range(2))
        with trio.move_on_after(patience_s):
            await trio.sleep(there_s)
            target = self._controller_of.get(node_id, node_id)
            await self._goes_on(target)
            response = await self._served(target, call)
            await trio.sleep(back_s)
            return response
        raise Unanswered("DEADLINE_EXCEEDED", f"no answer within {patience_s:g} s")

    async def _goes_on(self, node_id: int) -> None:
        while self._lives.get(node_id) in self._held:
            await self._stirred.wait()

    async def _served(self, node_id: int, call: Call) -> Message:
        life = self._lives.get(node_id)
        if life is None or self.life(node_id) is None:
            raise Unanswered("UNAVAILABLE", f"connection refused by node {node_id}")
        asked = _Asked()
        life.asked[asked] = None
        try:
            if not life.node.service.accept(call, asked.answer):
                life.context.run(life.nursery.start_soon, self._dispatch, life, call, asked)
            await asked.done.wait()
        finally:
            del life.asked[asked]
        if asked.response is None:
            raise Unanswered("UNAVAILABLE", f"node {node_id} has broken the connection")
        return asked.response

    async def _dispatch(self, life: _Life, call: Call, asked: _Asked) -> None:
        asked.answer(await life.node.service.dispatch(call))

    async def ask_leader(self, api: str, request: Any, timeout_ms: int) -> Any:
        """The answer of whoever leads. ApiError, ClusterUnreachable."""
        leads = await self.find_leader()
        if leads is None:
            raise ClusterUnreachable("no controller says who leads")
        request.header.timeout_ms, request.header.cluster_id = timeout_ms, self.cluster_id
        try:
            response = await self.ask(self._operator, leads.node, api, request, timeout_ms / 1000 + GRACE_S)
        except Unanswered as error:
            raise ClusterUnreachable(str(error)) from error
        header = response.header
        if header.error_code:
            raise ApiError(ErrorCode(header.error_code), header.error_message)
        return response

    # -- brokers -------------------------------------------------------------------------------------------------------

    async def _stand_in(self, broker: int) -> None:
        """Registers a broker and sends its heartbeats, for ever."""
        directory = self._new_id()
        listeners = tuple(Listener(name, HOST, self._peer_at[broker].port) for name in ("GRPC", "PEER"))
        registration = BrokerRegistrationRequest(
            broker, self.cluster_id, self._new_id(), listeners, supported_features(), None, (directory,)
        )
        place = Place(self.network, broker, self._chance(f"pauses {broker}"))
        async with trio.open_nursery() as nursery:
            pool = PeerPool(nursery, PeerIdentity(self.cluster_id, 0, ReplicaKey(broker, directory)), place)
            while True:
                answer = await self._of_controller(
                    pool, broker, Api.BROKER_REGISTRATION, registration, BrokerRegistrationResponse
                )
                epoch = answer.broker_epoch
                heartbeat = BrokerHeartbeatRequest(broker, epoch, epoch + 1, False, False)
                while True:
                    beaten = await self._of_controller(pool, broker, Api.BROKER_HEARTBEAT, heartbeat, BrokerHeartbeatResponse)
                    if beaten.error:
                        break
                    await trio.sleep(BEAT_S)

    async def _of_controller(self, pool: PeerPool, broker: int, api: int, request: msgspec.Struct, kind: type[Any]) -> Any:
        """The answer of whoever leads, which is asked for among all."""
        while True:
            at = self._peer_at[self._controller_of[broker]]
            try:
                body = await pool.request(at, api, msgspec.msgpack.encode(request), timeout_ms=BROKER_TIMEOUT_MS)
                answer = msgspec.msgpack.decode(body, type=kind)
                if not answer.error or (api == Api.BROKER_HEARTBEAT and answer.error in _REGISTER_AGAIN):
                    return answer
            except (PeerUnreachable, PeerTimeout, PeerError):
                pass
            place = self.controller_ids.index(self._controller_of[broker])
            self._controller_of[broker] = self.controller_ids[(place + 1) % len(self.controller_ids)]
            await trio.sleep(_LOOK_S)


def last_words(error: BaseException) -> str:
    """What ended a node, as its process would have said it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
