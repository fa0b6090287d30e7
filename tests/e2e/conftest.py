"""Clusters of real processes for the tests, with nothing left behind: no process, no port, no directory.

`lab` is the shared cluster of three controllers and three brokers. A test may kill, pause and stop its nodes; they are restored
afterwards. A test with permanent damage uses `small_lab` or `node_files`. Tests with the shared cluster run first, and the
cluster ends with the last of them: later it would only take processor time from other tests.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.config_parts import config_changes
from kraftlab.common.errors import ApiError
from kraftlab.common.uuids import to_text
from kraftlab.config import meta_properties, properties
from kraftlab.config.resources import ResourceType
from kraftlab.demo import verify
from kraftlab.demo.lab import Lab, TopicPartition, wait_until
from kraftlab.lab import LocalCluster, cluster_plan, layout
from kraftlab.lab.cluster_plan import NodePlan
from kraftlab.records.record_batch import Record, build_batch

from ..helpers.commands import run_command

OVERRIDES = {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "log.segment.delete.delay.ms": "300",
}
LOG_LINES_OF_A_FAILURE = 12
TRANSFER_S = 2.0

HERE = pathlib.Path(__file__).parent

_directories: set[pathlib.Path] = set()
_logged: dict[pathlib.Path, int] = {}
"""Size of each log at the start of the test."""


@contextmanager
def scratch_directory(name: str) -> Iterator[pathlib.Path]:
    """A directory that is gone afterwards, and with it whatever process still uses it."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix=f"kraftlab-e2e-{name}-"))
    _directories.add(directory)
    try:
        yield directory
    finally:
        _directories.discard(directory)
        left = processes_of(directory)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)
    assert not left, f"processes outlived the test: {left}"


def processes_of(directory: pathlib.Path) -> dict[int, str]:
    """Command lines of living processes that were given the directory or hold a file of it open, by process id."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            files = []
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                for link in (entry / "fd").iterdir():
                    with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                        files.append(os.readlink(link))
            except OSError:
                continue
            if any(str(directory) in text for text in (command, *files)):
                found[int(entry.name)] = command
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = [place for place, item in enumerate(items) if item.path.is_relative_to(HERE)]
    ordered = sorted((items[place] for place in places), key=lambda item: not shares_the_cluster(item))
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def shares_the_cluster(item: pytest.Item) -> bool:
    return item.path.is_relative_to(HERE) and "shared_cluster" in getattr(item, "fixturenames", ())


def logs() -> list[pathlib.Path]:
    """The logs of the nodes of all clusters."""
    return [path for directory in _directories for path in sorted(directory.glob("logs/*.log"))]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    _logged.clear()
    _logged.update({path: path.stat().st_size for path in logs()})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add the last log lines of every node during the test to a failure."""
    report = yield
    if report.failed:
        for path in logs():
            said = path.read_bytes()[_logged.get(path, 0) :].decode(errors="replace").splitlines()[-LOG_LINES_OF_A_FAILURE:]
            if said:
                report.sections.append((f"log of {path.stem}", "\n".join(said)))
    return report


class Workbench(Lab):
    """A running cluster with the demo's queries and common steps of tests."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(cluster)
        self._topics = 0

    @property
    def active(self) -> int:
        """The active controller."""
        return self.admin.describe_cluster().leader_id

    def create_topic(self, name: str, *assignments: list[int], configs: dict[str, str] | None = None) -> None:
        """One partition per assignment; all replicas are there and in sync when it returns."""
        topic = pb.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                pb.CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
                for index, replicas in enumerate(assignments)
            ],
            configs=[pb.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        self.admin.create_topics([topic])
        self.data.refresh()
        wait_until(f"{name} is there", lambda: self.replicas_are_equal(name))

    def fill(self, topic: str, size_bytes: int, *, partition: int = 0) -> None:
        """Appends about so many bytes, in sync on all replicas when it returns."""
        now_ms = int(time.time() * 1000)
        value = os.urandom(1000)
        for _ in range(max(size_bytes // 20_000, 1)):
            self.data.produce(topic, partition, build_batch([Record(None, value, now_ms)] * 20))

    def reassign(self, targets: dict[TopicPartition, list[int] | None]) -> None:
        self.admin.alter_partition_reassignments(targets)

    def throttle(self, topic: str, rate: int | None) -> None:
        """Throttles every replica of a topic to `rate` bytes per second; None takes throttles away."""
        value = None if rate is None else "*"
        self.set_topic_configs(
            topic, dict.fromkeys((f"{side}.replication.throttled.replicas" for side in ("leader", "follower")), value)
        )
        rates = (f"{side}.replication.throttled.rate" for side in ("leader", "follower"))
        self.set_broker_configs(dict.fromkeys(rates, None if rate is None else str(rate)))

    def set_topic_configs(self, topic: str, configs: dict[str, str | None]) -> None:
        resource = config_changes(ResourceType.TOPIC, topic, configs)
        self.admin.incremental_alter_configs([resource])

    def topic_configs(self, topic: str) -> dict[str, str]:
        """Dynamic configs of a topic."""
        return {entry.name: entry.value for entry in self.admin.describe_topics([topic])[topic].configs}

    def contents(self, topic: str) -> dict[int, dict[int, verify.Content]]:
        """Return the content of every replica of a topic: partition → broker → content."""
        return {
            partition: {broker: verify.content_of_replica(digest) for broker, digest in held.items()}
            for (name, partition), held in self.digests().items()
            if name == topic
        }

    def replicas_are_equal(self, topic: str) -> bool:
        """Return whether all assigned replicas are in sync with equal bytes, and no other broker has a replica."""
        placed = {index: item for (name, index), item in self.partitions().items() if name == topic}
        held = self.contents(topic)
        return all(
            sorted(item.isr_nodes) == sorted(item.replica_nodes) == sorted(held.get(index, {}))
            and len({repr(content) for content in held[index].values()}) == 1
            for index, item in placed.items()
        )

    def state_of(self, topic: str) -> dict[int, object]:
        """Return the state that a cancel must restore: replicas, ISR, directories, and replicas on the disks."""
        on_disk = self.replicas_on_disk()
        return {
            index: (
                list(item.replica_nodes),
                sorted(item.isr_nodes),
                list(item.directories),
                list(item.adding_replicas),
                list(item.removing_replicas),
                sorted((row.broker, row.log_dir, row.is_future) for row in on_disk.get((name, index), [])),
            )
            for (name, index), item in self.partitions().items()
            if name == topic
        }

    def bytes_arrived(self, topic: str, broker: int) -> int:
        """Size of the replicas of a topic on a broker that does not have all of them yet."""
        rows = (row for (name, _), found in self.replicas_on_disk().items() if name == topic for row in found)
        return sum(row.size_bytes for row in rows if row.broker == broker and not row.is_future)

    def metadata_is_equal_everywhere(self) -> bool:
        """Return whether all nodes have the same image at one offset, in memory and in their logs."""
        offset = self.admin.describe_cluster().metadata_offset
        digests = set()
        for node in self.cluster.plan.nodes:
            wait_until(f"{node.name} reaches {offset}", lambda at=node.grpc: self.metadata_of(at).offset >= offset)
            answer = self.metadata_of(node.grpc, at_offset=offset, reread_log=True)
            digests |= {bytes(answer.image_digest), bytes(answer.reread_digest)}
        return len(digests) == 1

    @property
    def at(self) -> tuple[str, str]:
        """The option with the cluster's servers."""
        return "--bootstrap-server", self.cluster.bootstrap_servers

    def voters(self) -> dict[int, str]:
        """Directory ids of the controllers that vote, by node id."""
        return {voter.replica_id: voter.replica_directory_id for voter in self.admin.describe_quorum().current_voters}

    def directory_id(self, node_id: int) -> str:
        """Return the directory id of a controller from its disk."""
        found = meta_properties.read(self.cluster.metadata_dir(node_id))
        assert found is not None
        return to_text(found.directory_id)

    def transfer(self, node_id: int) -> None:
        """Lets a voter lead. Another one may be quicker to be elected: then it is asked again."""
        asked_at = float("-inf")

        def leads() -> bool:
            nonlocal asked_at
            if self.active != node_id and time.monotonic() - asked_at > TRANSFER_S:
                asked_at = time.monotonic()
                self.admin.transfer_leadership(node_id)
            return self.active == node_id

        wait_until(f"{node_id} leads", leads)

    def heal(self) -> None:
        """Every node runs and serves again."""
        for node_id in (*self.cluster.controller_ids, *self.cluster.broker_ids):
            self.cluster.resume_node(node_id)
        self.cluster.start()
        self.cluster.wait_ready()


class TopicMaker(threading.Thread):
    """Creates topics one after the other until stopped; remembers which were acknowledged, and when."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[str, float] = {}
        self._bootstrap_servers = bootstrap_servers
        self._prefix = prefix
        self._stopping = threading.Event()

    def run(self) -> None:
        number = 0
        with AdminClient(self._bootstrap_servers, timeout_ms=5000) as admin:
            while not self._stopping.is_set():
                name = f"{self._prefix}-{number}"
                number += 1
                try:
                    admin.create_topics([pb.CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
                except (ApiError, ClusterUnreachable):
                    continue
                self.acknowledged[name] = time.monotonic()
                self._stopping.wait(0.03)

    def stop(self) -> None:
        self._stopping.set()
        self.join(timeout=10)


@pytest.fixture
def topic_maker() -> Iterator[Callable[[Workbench, str], TopicMaker]]:
    """Return a function that starts to create topics with a prefix."""
    made: list[TopicMaker] = []

    def begin(lab: Workbench, prefix: str) -> TopicMaker:
        made.append(TopicMaker(lab.cluster.bootstrap_servers, prefix))
        made[-1].start()
        return made[-1]

    yield begin
    for maker in made:
        maker.stop()


class Shared:
    """The cluster that tests share, from the first to the last test that uses it."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._cluster: LocalCluster | None = None

    def cluster(self) -> LocalCluster:
        if self._cluster is None:
            directory = self._running.enter_context(scratch_directory("shared"))
            self._cluster = self._running.enter_context(LocalCluster(directory, 3, 3, 2, overrides=OVERRIDES))
        return self._cluster

    def close(self) -> None:
        self._cluster = None
        self._running.close()


SHARED = Shared()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    try:
        return (yield)
    finally:
        if shares_the_cluster(item) and (nextitem is None or not shares_the_cluster(nextitem)):
            SHARED.close()


def pytest_sessionfinish() -> None:
    """Also when the run was interrupted."""
    SHARED.close()


@pytest.fixture
def shared_cluster(starts_clusters: None) -> LocalCluster:
    return SHARED.cluster()


@pytest.fixture
def lab(shared_cluster: LocalCluster) -> Iterator[Workbench]:
    """The shared cluster, whole before and after."""
    lab = Workbench(shared_cluster)
    try:
        yield lab
        lab.heal()
    except BaseException:
        SHARED.close()
        raise
    finally:
        lab.close()


@pytest.fixture(scope="session")
def quorum_clusters(starts_clusters: None) -> Callable[..., AbstractContextManager[Workbench]]:
    """Makes clusters of so many controllers and brokers, with their voters in the log or static; overrides may be given."""

    @contextmanager
    def cluster_of(controllers: int, brokers: int, *, voters_in_log: bool = True, **overrides: str) -> Iterator[Workbench]:
        settings = OVERRIDES | {key.replace("_", "."): value for key, value in overrides.items()}
        with (
            scratch_directory("quorum") as directory,
            LocalCluster(directory, controllers, brokers, 1, overrides=settings, voters_in_log=voters_in_log) as cluster,
        ):
            lab = Workbench(cluster)
            try:
                yield lab
            finally:
                lab.close()

    return cluster_of


@pytest.fixture
def kraftlab_here(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run the command line in this process: exit code and output."""

    def run(*arguments: str) -> tuple[int, str]:
        code, out, err = run_command(capsys, *arguments)
        return code, out + err

    return run


@pytest.fixture
def small_lab(starts_clusters: None) -> Iterator[Workbench]:
    """A cluster of one controller and one broker that the test may break."""
    with scratch_directory("small") as directory:
        cluster = LocalCluster(directory, 1, 1, 2, overrides=OVERRIDES)
        try:
            cluster.start()
            cluster.wait_ready()
            lab = Workbench(cluster)
            try:
                yield lab
            finally:
                lab.close()
        finally:
            cluster.close()


class NodeFiles:
    """One controller and one broker, formatted and not started, to be started by hand."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        cluster = LocalCluster(directory, 1, 1, 2)
        self.plan = cluster.plan
        cluster.close()
        self.started: list[subprocess.Popen[str]] = []

    def node(self, role: str) -> NodePlan:
        return (self.plan.controllers if role == "controller" else self.plan.brokers)[0]

    def home(self, role: str) -> pathlib.Path:
        return self.directory / self.node(role).name

    def config(self, role: str) -> pathlib.Path:
        return layout.properties_path(self.directory, self.node(role))

    def change(self, role: str, **changes: str | None) -> None:
        """Sets keys of a node's server.properties (`_` for `.`), or removes them."""
        values = properties.load(self.config(role)) | {key.replace("_", "."): value for key, value in changes.items()}
        text = properties.dumps({key: value for key, value in values.items() if value is not None})
        self.config(role).write_text(text, encoding="utf-8")

    def start(self, role: str, **variables: str) -> subprocess.Popen[str]:
        """`kraftlab node --config FILE`, with these variables in its environment."""
        command = [sys.executable, "-m", "kraftlab.cli.main", "node", "--config", str(self.config(role))]
        environment = {**os.environ, **variables}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        self.started.append(process)
        return process

    def run(self, role: str) -> tuple[int, str]:
        """Start a node that must end: exit code and last line."""
        process = self.start(role)
        try:
            said, _ = process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            raise AssertionError(f"{role} did not give up within 15 s; it said:\n{said}") from None
        return process.returncode, said.strip().splitlines()[-1] if said.strip() else ""

    def run_once(self, role: str) -> None:
        """Starts a node, and stops it once it serves: its logs are there then."""
        process = self.start(role)
        self.wait_until_serving(role)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=15)
        self.started.remove(process)

    def wait_until_serving(self, role: str) -> None:
        """Wait until a node's admin port accepts connections; fail with its output if it ends."""

        def serves() -> bool:
            ended = next((process for process in self.started if process.poll() is not None), None)
            assert ended is None, f"{role} ended with {ended.returncode}: {ended.communicate()[0]}"
            return is_listening(self.node(role).grpc_port)

        wait_until(f"{role} serves", serves)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def node_files(starts_clusters: None) -> Iterator[NodeFiles]:
    with scratch_directory("node") as directory:
        files = NodeFiles(directory)
        try:
            yield files
        finally:
            files.close()


def is_listening(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((cluster_plan.HOST, port)) == 0


@pytest.fixture
def listening() -> Callable[[int], bool]:
    """Return a function that tests whether a port accepts connections."""
    return is_listening


@pytest.fixture
def processes() -> Callable[[pathlib.Path], dict[int, str]]:
    """Processes that use a directory."""
    return processes_of


@pytest.fixture
def scratch() -> Iterator[pathlib.Path]:
    """A directory for the test."""
    with scratch_directory("scratch") as directory:
        yield directory


@pytest.fixture
def kraftlab() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command line: `kraftlab("topics", "--list", …)`."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kraftlab.cli.main", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=30)

    return run
