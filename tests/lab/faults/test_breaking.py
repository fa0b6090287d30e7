"""A cluster of processes that is broken by name, as `kraftlab up --allow-chaos` lets people do it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli import main
from kraftlab.client import AdminClient, ClusterUnreachable, DataClient
from kraftlab.common.errors import ApiError
from kraftlab.lab import LocalCluster
from kraftlab.lab.faults.breaker import Breaker
from kraftlab.lab.faults.orders import SOCKET_NAME
from kraftlab.lab.faults.orders import Order as Request
from kraftlab.lab.faults.server import ControlServer
from kraftlab.records.record_batch import Record, build_batch

from ...helpers.commands import Ran, run_command
from ...helpers.waiting import wait_until

pytestmark = pytest.mark.cluster

OVERRIDES = {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "200",
}
CAN_FAIL_CALLS = sys.platform == "linux" and any(map(shutil.which, ("cc", "gcc", "clang")))

Order = Callable[..., dict[str, object]]


class Lab:
    """A cluster, the leader as each controller sees it, and lines about orders that ended."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.notices: list[str] = []

    def view_of(self, node_id: int) -> tuple[int, int]:
        """(leader, epoch) as a controller sees it, -1 for nobody."""
        try:
            with self.cluster.admin(timeout_ms=500) as admin:
                answer = admin.call_at(self.cluster.node(node_id).grpc, pb.DescribeClusterResponse, pb.DescribeClusterRequest())
        except (ApiError, ClusterUnreachable):
            return -1, -1
        return answer.header.leader_id, answer.header.epoch

    def controllers_known_to(self, node_id: int) -> set[int]:
        """Ids of the controllers of which a node knows the address."""
        with self.cluster.admin(timeout_ms=2000) as admin:
            answer = admin.call_at(self.cluster.node(node_id).grpc, pb.DescribeClusterResponse, pb.DescribeClusterRequest())
        return {controller.controller_id for controller in answer.controllers if controller.port}

    def wait_for_another(self, old: int) -> None:
        """Wait until all but the old leader see another one."""
        others = self.others(old)
        wait_until(lambda: {self.view_of(node_id)[0] for node_id in others} < set(others), f"another one than {old} leads")

    def others(self, node_id: int) -> list[int]:
        return [other for other in self.cluster.controller_ids if other != node_id]

    def leader(self) -> int:
        """The leader that every controller sees."""
        wait_until(self.is_whole, "all see the same leader")
        return self.view_of(self.cluster.controller_ids[0])[0]

    def is_whole(self) -> bool:
        views = {self.view_of(node_id) for node_id in self.cluster.controller_ids}
        return len(views) == 1 and views.pop()[0] >= 0

    def name(self, node_id: int) -> str:
        return self.cluster.node(node_id).name

    def create(self, topic: str, *node_ids: int, timeout_ms: int = 5000) -> None:
        """Create a topic with requests to those nodes only."""
        servers = ",".join(str(self.cluster.node(node_id).grpc) for node_id in node_ids)
        with AdminClient(servers, timeout_ms=timeout_ms) as admin:
            admin.create_topics([pb.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)])


@pytest.fixture(scope="module")
def whole(starts_clusters: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("lab")
    with LocalCluster(directory, 3, 2, 2, overrides=OVERRIDES, allow_chaos=True) as cluster:
        lab = Lab(cluster)
        server = ControlServer(directory, Breaker(cluster, lab.notices.append))
        try:
            yield lab
        finally:
            server.close()


@pytest.fixture
def order(whole: Lab, capsys: pytest.CaptureFixture[str]) -> Order:
    """Give an order as the command line does; return its answer."""

    def give(*words: str) -> dict[str, object]:
        capsys.readouterr()
        code = main.run(["cluster", *words, "--data", str(whole.cluster.directory), "--json"])
        document: dict[str, object] = json.loads(capsys.readouterr().out)
        assert ("error" in document) == (code != 0)
        return document

    return give


@pytest.fixture
def lab(whole: Lab, order: Order) -> Iterator[Lab]:
    """The cluster, healed before and after the test."""
    yield whole
    order("heal")
    whole.cluster.wait_ready()
    whole.leader()


def test_a_leader_that_is_cut_off_resigns_and_follows_again_when_it_is_healed(lab: Lab, order: Order) -> None:
    old = lab.leader()
    done = order("isolate", "leader")
    assert len(done["links"]) == 8  # type: ignore[arg-type]
    lab.wait_for_another(old)
    wait_until(lambda: lab.view_of(old)[0] != old, "the old one has resigned")
    lab.create("made-without-the-old-leader", *lab.others(old))
    order("heal")
    new = lab.leader()
    assert new in lab.cluster.controller_ids
    wait_until(lambda: has_topic(lab, old, "made-without-the-old-leader"), "the old one has what it missed")


def has_topic(lab: Lab, node_id: int, topic: str) -> bool:
    with lab.cluster.admin(timeout_ms=1000) as admin:
        request = pb.DescribeTopicPartitionsRequest()
        answer = admin.call_at(lab.cluster.node(node_id).grpc, pb.DescribeTopicPartitionsResponse, request)
    return topic in {found.name for found in answer.topics}


def test_a_leader_whose_messages_are_cut_is_replaced(lab: Lab, order: Order) -> None:
    old = lab.leader()
    order("isolate", "leader", "--one-way")
    lab.wait_for_another(old)
    wait_until(lambda: lab.view_of(old)[0] != old, "the old one has heard of it")


def test_a_leader_that_gets_no_messages_is_replaced(lab: Lab, order: Order) -> None:
    old = lab.leader()
    order("cut", "followers,brokers", "leader", "--one-way")
    wait_until(lambda: lab.view_of(old)[0] != old, "the old one has resigned")
    lab.wait_for_another(old)


def test_a_client_that_knows_only_a_broker_names_the_silent_voters_of_a_lost_quorum(lab: Lab, order: Order) -> None:
    leader = lab.leader()
    survivor, *lost = lab.others(leader)
    wait_until(lambda: lab.controllers_known_to(0) == set(lab.cluster.controller_ids), "the broker knows all controllers")
    order("kill", ",".join(map(lab.name, (leader, *lost))))
    said: list[str] = []
    broker = str(lab.cluster.node(0).grpc)
    failures = (ApiError, ClusterUnreachable)
    with AdminClient(broker, timeout_ms=4500, on_wait=said.append) as admin, pytest.raises(failures) as raised:
        admin.create_topics([pb.CreatableTopic(name="without-a-majority", num_partitions=1, replication_factor=1)])
    silent = ", ".join(f"{node_id} at {lab.cluster.node(node_id).grpc}" for node_id in sorted((leader, *lost)))
    answering = f"{survivor} at {lab.cluster.node(survivor).grpc}"
    assert said == [f"1 of 3 voters answers: no majority (silent: {silent}; answering: {answering})"]
    assert f"{said[0]}; " in str(raised.value)


def test_a_cut_between_two_followers_disturbs_nobody(lab: Lab, order: Order) -> None:
    leader = lab.leader()
    _, epoch = lab.view_of(leader)
    order("cut", *map(lab.name, lab.others(leader)))
    for number in range(5):
        lab.create(f"beside-a-cut-{number}", *lab.cluster.controller_ids)
    assert {lab.view_of(node_id) for node_id in lab.cluster.controller_ids} == {(leader, epoch)}


def test_the_smaller_side_of_a_partition_commits_nothing(lab: Lab, order: Order) -> None:
    old = lab.leader()
    order("partition", "leader,broker-0|followers,broker-1")
    lab.wait_for_another(old)
    lab.create("made-by-the-majority", *lab.others(old))
    with pytest.raises((ApiError, ClusterUnreachable)):
        lab.create("made-by-the-minority", old, timeout_ms=1000)


def test_a_killed_node_comes_back_after_its_time_and_a_paused_one_goes_on(lab: Lab, order: Order) -> None:
    pid = lab.cluster.pid(1)
    assert order("kill", "broker-1", "--for", "300ms")["undone_after_ms"] == 300
    wait_until(lambda: lab.cluster.pid(1) not in (None, pid), "it runs again")
    lab.cluster.wait_ready()
    order("pause", "broker-1", "--for", "300ms")
    wait_until(lambda: any("paused" in line for line in lab.notices), "it goes on")
    assert any("undone: broker-1: killed" in line for line in lab.notices)
    assert order("status")["orders"] == []


def test_an_order_within_another_does_not_end_it(lab: Lab, order: Order) -> None:
    order("cut", "controllers", "broker-1")
    order("cut", "controller-3000", "broker-1", "--for", "100ms")
    wait_until(lambda: any("cut controller-3000 ↔ broker-1" in line for line in lab.notices), "the short one is over")
    links = order("status")["links"]
    assert len(links) == 6  # type: ignore[arg-type]
    (standing,) = order("status")["orders"]  # type: ignore[misc]
    told = f"#{standing['number']} {standing['text']}"
    healed = order("heal", "controller-3000", "broker-1")
    assert healed["text"] == f"healed controller-3000 ↔ broker-1: {told} (still in force elsewhere)"
    assert order("heal", "broker-1")["text"] == f"healed broker-1 ↔ all others: {told} (over)"
    assert order("status")["orders"] == []
    assert order("heal")["text"] == "healed everything: nothing was broken"


def test_a_slow_cluster_works_slowly(lab: Lab, order: Order) -> None:
    order("slow", "controllers", "--delay", "40ms")
    begun = time.monotonic()
    lab.create("slowly-made", lab.leader())
    assert time.monotonic() - begun >= 0.08, "a commit is a round trip to a follower"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the files of a running process")
def test_a_leader_without_space_makes_room_for_another_and_comes_back(lab: Lab, order: Order) -> None:
    old = lab.leader()
    order("fill-disk", "leader")
    states = {node["name"]: node["state"] for node in order("status")["nodes"]}  # type: ignore[attr-defined]
    assert states[lab.name(old)] == "full"
    wait_until(lambda: is_made(lab, "made-beside-a-full-disk"), "a topic can be made")
    wait_until(lambda: lab.view_of(lab.others(old)[0])[0] not in (old, -1), "another one leads")
    order("free-disk", lab.name(old))
    assert lab.cluster.exited() == {}
    wait_until(lambda: has_topic(lab, old, "made-beside-a-full-disk"), "it has what it missed")


@pytest.mark.skipif(not CAN_FAIL_CALLS, reason="failing file calls take Linux and a C compiler")
def test_a_failed_disk_is_shown_and_comes_back_when_it_is_repaired_and_brought_online(
    lab: Lab, order: Order, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(lab.cluster.log_dirs(1)[1])

    def run(*words: str) -> Ran:
        return run_command(capsys, *words, "--bootstrap-server", lab.cluster.node(0).grpc)

    def state() -> str:
        lines = run("log-dirs", "--describe", "--format", "table").lines
        return next(line.split()[2] for line in lines if line.split()[1:2] == [path])

    assert state() == "online"
    done = order("fail-disk", "broker-1", "d1", "--for", "2s")
    assert (done["text"], done["directories"], done["nodes"]) == (f"broker-1: I/O errors in {path}", [path], ["broker-1"])
    online = ("log-dirs", "--online", path, "--broker", "1")
    step = f"then broker-1 keeps the directory offline until: kraftlab {' '.join(online)}, or: kraftlab cluster restart broker-1"
    assert done["next_steps"] == [step]
    wait_until(lambda: state() == "offline", "the broker has noticed it")
    health = run("cluster", "health")
    assert (health.code, health.lines[0]) == (1, f"log directory {path} of broker 1 is offline")
    assert path in [finding["text"].split()[2] for finding in order("status")["health"]]  # type: ignore[attr-defined]
    wait_until(lambda: step in lab.notices, "it is repaired")
    assert f"undone: broker-1: I/O errors in {path}" in lab.notices
    assert state() == "offline"
    assert run(*online).lines[0] == f"Log directory {path} of broker 1 is online."
    assert state() == "online"


@pytest.mark.skipif(not CAN_FAIL_CALLS, reason="failing file calls take Linux and a C compiler")
def test_a_full_directory_refuses_writes_and_stays_online(lab: Lab, order: Order) -> None:
    full = lab.cluster.log_dirs(1)[0]
    with lab.cluster.admin() as admin, DataClient(admin) as data:
        topic = pb.CreatableTopic(name="beside-space", num_partitions=-1, replication_factor=-1)
        topic.assignments.add(partition_index=0, broker_ids=[1])
        admin.create_topics([topic])
        wait_until(lambda: place(admin), "it has a log")
        admin.alter_replica_log_dirs(1, {("beside-space", 0): str(full)})
        wait_until(lambda: place(admin) == [str(full)], "it is in the directory")
        data.produce("beside-space", 0, RECORD)
        order("fill-disk", "broker-1", f"{full}/")
        with pytest.raises(ApiError, match=f"no space left in {full}"):
            data.produce("beside-space", 0, RECORD, timeout_ms=1000)
        assert order("free-disk", "broker-1", "d0")["text"] == "broker-1: has space in d0"
        data.produce("beside-space", 0, RECORD)
        assert not any(found.error_code for found in admin.describe_log_dirs(1))


RECORD = build_batch([Record(timestamp_ms=1, key=b"k", value=b"v")])


def place(admin: AdminClient) -> list[str]:
    """Directories of the replica on broker 1, with that of a move."""
    return [found.log_dir for found in admin.describe_log_dirs(1, [("beside-space", 0)]) if found.replicas]


def is_made(lab: Lab, topic: str) -> bool:
    try:
        lab.create(topic, *lab.cluster.controller_ids, timeout_ms=1000)
    except (ApiError, ClusterUnreachable):
        return False
    return True


def test_restarted_nodes_are_as_new(lab: Lab, order: Order) -> None:
    pids = {node_id: lab.cluster.pid(node_id) for node_id in lab.cluster.broker_ids}
    order("kill", "broker-0")
    order("pause", "broker-1")
    order("restart", "brokers")
    assert all(lab.cluster.pid(node_id) not in (None, pids[node_id]) for node_id in lab.cluster.broker_ids)
    assert order("status")["orders"] == []


def test_restarted_brokers_stop_while_controllers_live(lab: Lab, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = []
    stop_node = lab.cluster.stop_node

    def noted(node_id: int) -> bool:
        stopped.append(node_id)
        return stop_node(node_id)

    monkeypatch.setattr(lab.cluster, "stop_node", noted)
    order("restart", "all")
    assert stopped == [*lab.cluster.broker_ids, *lab.cluster.controller_ids]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("kill controller-9", "there is no node 'controller-9'; names are controller-3000, controller-3001, controller-3002"),
        ("cut broker-0 broker-0", "no link from broker-0 to itself"),
        ("resume broker-0", "broker-0: not paused"),
        ("slow all --delay 0ms", "give one of them a value"),
        ("kill broker-0 --for 25h", "at most a day"),
        ("partition all", "partition takes two groups of names or more, not 1"),
        ("partition broker-0 broker-1,broker-0", "broker-0: on two sides of the partition; name each node only once"),
        ("slow all --delay 5", "expected e.g. 500ms, 5s, 2m or 1h"),
        ("lossy all --loss 120%", "expected e.g. 20% or 0.2"),
        ("slow leader ''", "nothing names no node here; names are"),
        ("heal ''", "nothing names no node here; names are"),
        ("fail-disk broker-9 d1", "there is no node 'broker-9'; names are controller-3000"),
        ("fail-disk broker-1 d7", "broker-1: there is no log directory 'd7'; there are /"),
        ("fail-disk broker-1 ''", "broker-1: there is no log directory ''; there are /"),
        ("fail-disk broker-1 /", "broker-1: there is no log directory '/'; there are /"),
        ("fail-disk broker-1 d1/segments", "broker-1: there is no log directory 'd1/segments'"),
        ("fail-disk all d0", "controller-3000 has no log directories; name brokers"),
        ("fail-disk broker-1", "Missing argument 'DIRECTORY'"),
        ("fail-disk broker-1 d1 --for 0s", "fail-disk for 0 ms: expected more than 0 and at most a day"),
        ("fail-disk broker-1 d1 --for -5s", "invalid duration '-5s': expected e.g. 500ms, 5s, 2m or 1h"),
        ("fail-disk broker-1 d1 --for 999999999999h", "expected more than 0 and at most a day"),
        ("fill-disk broker-1 d7 --for 5s", "broker-1: there is no log directory 'd7'"),
        ("free-disk broker-1 d1", "broker-1: not without space in d1; see: kraftlab cluster status"),
    ],
)
def test_an_invalid_order_gets_a_reason(lab: Lab, order: Order, words: str, says: str) -> None:
    error = order(*shlex.split(words))["error"]
    assert says in error["message"]  # type: ignore[index]
    assert order("status")["orders"] == []


def test_the_socket_is_only_for_its_owner_and_refuses_invalid_orders(lab: Lab) -> None:
    path = lab.cluster.directory / SOCKET_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        lines = connection.makefile("rwb")
        for said, answer in (
            (b"{", "invalid order"),
            (b'{"order":"explode"}', "there is no order"),
            (b'{"order":"heal","now":1}', "now"),
            (b'{"order":"\xff"}', "invalid order"),
        ):
            lines.write(said + b"\n")
            lines.flush()
            assert answer in json.loads(lines.readline())["error"]


@pytest.mark.nightly
def test_a_controller_that_joins_later_is_behind_a_proxy_too(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 1, 0, 1, allow_chaos=True) as cluster:
        added = cluster.add_controller()
        cluster.start_node(added)
        cluster.wait_ready()
        lab = Lab(cluster)
        wait_until(lambda: joins(cluster, added), "it votes")
        cluster.cut(3000, added)
        cluster.cut(added, 3000)
        wait_until(lambda: lab.view_of(3000)[0] != 3000, "a majority of two is lost")
        cluster.heal_all()
        assert lab.leader() in (3000, added)
    with LocalCluster(tmp_path) as cluster:
        assert not cluster.links_are_proxied
        assert Lab(cluster).leader() in (3000, added)


def joins(cluster: LocalCluster, node_id: int) -> bool:
    try:
        cluster.join(node_id)
    except ApiError:
        return False
    return True


def test_names_are_completed(lab: Lab) -> None:
    from click.shell_completion import BashComplete

    completion = BashComplete(main.build(), {}, "kraftlab", "_KRAFTLAB_COMPLETE")
    line = ["cluster", "kill", "--data", str(lab.cluster.directory)]
    assert [item.value for item in completion.get_completions(line, "br")] == ["broker-0", "broker-1", "brokers"]
    assert [item.value for item in completion.get_completions(line, "leader,controller-300")] == [
        f"leader,controller-300{number}" for number in range(3)
    ]
    assert completion.get_completions(["cluster", "kill", "--data", "/nowhere"], "br") == []
    for command in ("fail-disk", "fill-disk", "free-disk"):
        line = ["cluster", command, "--data", str(lab.cluster.directory), "broker-1"]
        assert [item.value for item in completion.get_completions(line, "d")] == ["d0", "d1"]
    assert completion.get_completions(["cluster", "fail-disk", "--data", "/nowhere", "broker-1"], "d") == []


def test_no_cluster_no_orders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["cluster", "heal", "--data", str(tmp_path)]) == 1
    assert f"start one with: kraftlab up --allow-chaos --data {tmp_path}" in capsys.readouterr().err


def test_an_order_is_undone_though_its_command_was_killed(tmp_path: Path) -> None:
    """The directory's path is longer than a socket's address may be."""
    directory = tmp_path / ("a-long-name" * 10)
    command = [sys.executable, "-m", "kraftlab.cli.main"]
    numbers = ["--controllers", "1", "--brokers", "1", "--log-dirs", "1"]
    running = subprocess.Popen(
        [*command, "up", "--data", str(directory), "--allow-chaos", "--json", *numbers], stdout=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        ready = json.loads(running.stdout.readline())
        assert ready["control_socket"] == str(directory / SOCKET_NAME)
        pid = next(node["pid"] for node in ready["nodes"] if node["id"] == 0)
        killer = subprocess.Popen([*command, "cluster", "pause", "broker-0", "--for", "1s", "--data", str(directory)])
        wait_until(lambda: state_of(pid) == "T", "it stands still")
        killer.kill()
        killer.wait()
        wait_until(lambda: state_of(pid) != "T", "it goes on")
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
    assert not (directory / SOCKET_NAME).exists()
    assert not os.path.exists(f"/proc/{pid}")


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_followers_whose_clocks_run_fast_elect_another_leader(lab: Lab, order: Order) -> None:
    old = lab.leader()
    _, epoch = lab.view_of(old)
    order("clock", "followers", "--rate", "8")
    wait_until(lambda: lab.view_of(old)[1] > epoch, "there was an election")
    order("heal")
    lab.create("made-by-the-right-time", *lab.cluster.controller_ids)


def test_a_broker_whose_clock_has_jumped_goes_on(lab: Lab, order: Order) -> None:
    answer = order("clock", "broker-1", "--jump", "1h")
    assert answer["text"] == "broker-1: clocks have jumped 3600 s ahead"
    lab.cluster.wait_ready()
    assert "give either --rate or --jump" in str(order("clock", "broker-1")["error"])
    assert "0.001 to 1000 times" in str(order("clock", "broker-1", "--rate", "0")["error"])


def test_a_node_without_a_disk_of_its_own_cannot_lose_its_power(lab: Lab, order: Order) -> None:
    answer = order("power-loss", "leader")

    assert "has no disk of its own that could lose its power" in str(answer["error"])
    assert "kraftlab up --allow-chaos --own-disks" in str(answer["error"])
    assert lab.is_whole()


CAN_MOUNT = sys.platform.startswith("linux") and os.geteuid() == 0 and Path("/dev/loop-control").exists()


@pytest.mark.skipif(not (CAN_MOUNT and shutil.which("mkfs.ext4")), reason="needs root on Linux, loop devices and mkfs.ext4")
@pytest.mark.nightly
def test_a_loss_of_power_takes_what_was_not_synced_and_disks_go_with_the_cluster_however_it_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def order(*words: str) -> dict[str, Any]:
        capsys.readouterr()
        main.run(["cluster", *words, "--data", str(tmp_path), "--json"])
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    def states() -> list[str]:
        return [node["state"] for node in order("status")["nodes"]]

    homes = [tmp_path / "controller-3000", tmp_path / "broker-0"]
    unsynced = [home / "unsynced" for home in homes]
    command = [sys.executable, "-m", "kraftlab.cli.main", "up", "--data", str(tmp_path), "--json"]
    shape = ["--controllers", "1", "--brokers", "1", "--log-dirs", "1", "--allow-chaos", "--own-disks"]
    shape += ["--property", "controlled.shutdown.enable=false"]
    parent = subprocess.Popen([*command, *shape], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        servers = json.loads(parent.stdout.readline())["bootstrap_servers"]
        try:
            with AdminClient(servers) as admin:
                admin.create_topics([pb.CreatableTopic(name="acknowledged", num_partitions=1, replication_factor=1)])
            for path in unsynced:
                path.write_bytes(b"gone; its name may have come to the disk with those of others")
            order("power-loss", "all")
            order("power-loss", "broker-0", "--for", "50ms")
            wait_until(lambda: len(order("status")["orders"]) == 1, "the shorter one is over")
            assert states() == ["dark", "dark"]

            order("heal")
            assert states() == ["running", "running"]
            assert all(not path.exists() or path.read_bytes() == b"" for path in unsynced)
        finally:
            parent.kill()
    wait_until(lambda: not any(home.is_mount() for home in homes), "nothing is mounted")
    assert not any(list(home.iterdir()) for home in homes)

    with LocalCluster(tmp_path) as cluster, cluster.admin() as admin:
        assert "acknowledged" in {*admin.describe_topics()}
    assert not any(home.is_mount() for home in homes)


def test_the_leader_is_found_and_broken_with_an_authorizer_that_knows_no_password(tmp_path: Path) -> None:
    access = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:nobody"}
    with LocalCluster(tmp_path, 2, 0, 1, overrides=access, allow_chaos=True) as cluster:
        breaker = Breaker(cluster, lambda line: None)
        with cluster.admin() as admin, pytest.raises(ApiError, match="Cluster authorization failed"):
            admin.describe_quorum()
        status = breaker.carry_out(Request("status")).status
        assert status is not None
        [leader] = [node.name for node in status.nodes if node.leads]
        assert breaker.carry_out(Request("isolate", (("followers",),))).links
        assert breaker.carry_out(Request("heal")).text
        assert breaker.carry_out(Request("kill", (("leader",),))).nodes == (leader,)
        breaker.close()
