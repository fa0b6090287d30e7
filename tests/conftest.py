"""The whole suite: its lanes, the time of each folder, and clocks that jump.

Two lanes. `make test` runs two workers (pytest-xdist). Tests with clusters of processes have deadlines in real time, so they run
one after the other, in the order of the folders, in one lane; all other tests run beside them, module by module. Tests of Spark
are the second lane. It starts after the last cluster, since a Java machine would take both processors. Tests with deadlines
within their own process run before that, beside clusters. Tests that only compute run beside Spark, the shortest last, when a
free worker takes the rest of the queue. Without workers (`pytest tests/broker`) clusters come first and Spark comes last, in one
process.

Both workers collect the same tests, and most of that time rewrites assertions. The workers begin at opposite ends, and each finds
the byte code of the other's half (`make test` allows byte code).

`--rounds 50` plays every property test 50 times with new examples, as `make nightly` does. Examples have no deadline: their time
depends on the load of the machine.

The end of a run reports the cost of each folder, in elapsed time and in processor time, which hardly depends on the load.
Processes of a test count in the test that waits for them.
"""

from __future__ import annotations

import ctypes
import fcntl
import inspect
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec
import pytest
from hypothesis import is_hypothesis_test, settings

from kraftlab.lab import cluster_plan, processes

settings.register_profile("unhurried", settings(), deadline=None, max_examples=40)
settings.load_profile("unhurried")

TESTS = Path(__file__).parent
CLOCK = "autojump_clock"
CLUSTERS = "clusters"
SPARK = "spark"
FOLDERS_WITH_CLUSTERS = ("cases", "lab", "e2e", "interop")
MODULES_WITH_CLUSTERS = (
    "chaos/test_real_end_to_end.py",
    "chaos/test_nemeses_on_processes.py",
    "chaos/test_testing.py",
    "cli/test_acls.py",
    "cli/test_commands.py",
    "cli/test_configs_end_to_end.py",
    "cli/test_end_to_end.py",
    "cli/test_kafka_protocol.py",
    "cli/test_moves_end_to_end.py",
    "cli/test_time_travel.py",
    "gateway/test_consumer_groups.py",
    "gateway/test_controllers.py",
    "gateway/test_existing_clients.py",
    "gateway/test_numbers_at_ports.py",
    "gateway/test_readme_clients.py",
    "gateway/test_traps.py",
    "pipeline/planning/test_plan_of_a_cluster.py",
)
EARLY_MODULES = ("quorum_driver/", "rpc/", "client/", "broker/", "quorum_storage/", "cli/", "demo/")
"""Modules that run beside clusters: they wait for sockets, threads and processes, with deadlines in real time."""
LONG_MODULES = ("chaos/", "simulation/", "controller/", "controller_kernels/")
"""Modules that come next: a long module at the end would keep one worker busy alone."""
QUEUE = (*EARLY_MODULES, *LONG_MODULES)


def lane_of(module: str) -> str:
    """Return the lane of a module by its path below this folder. Outside the two lanes every module is its own lane."""
    folder = module.partition("/")[0]
    if folder in FOLDERS_WITH_CLUSTERS or module in MODULES_WITH_CLUSTERS:
        return CLUSTERS
    return SPARK if module.startswith("pipeline/spark/") else module


def rank(module: str) -> int:
    """Return the position of a module in the queue."""
    lane = lane_of(module)
    if lane in (CLUSTERS, SPARK):
        return -1 if lane == CLUSTERS else len(QUEUE) + 1
    return next((place for place, prefix in enumerate(QUEUE) if module.startswith(prefix)), len(QUEUE))


def module_of(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else item.path.as_posix()


def has_a_clock_that_stands_still(item: pytest.Item) -> bool:
    """Return whether only a fixture of the test has the clock: pytest-trio ignores that, and real time passes."""
    if not isinstance(item, pytest.Function) or CLOCK not in item.fixturenames:
        return False
    return CLOCK not in inspect.signature(item.function).parameters


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if has_a_clock_that_stands_still(item):
            raise pytest.UsageError(f"{item.nodeid} has {CLOCK} by a fixture only; name it as a parameter of the test")
    items.sort(key=lambda item: (rank(module_of(item)), module_of(item).partition("/")[0]))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=1, metavar="N", help="play every property test N times")


@pytest.fixture
def round_number(request: pytest.FixtureRequest) -> int:
    """Number of the round, of `--rounds`."""
    return int(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    rounds = metafunc.config.getoption("--rounds")
    if rounds > 1 and is_hypothesis_test(metafunc.function):
        metafunc.fixturenames.append("round_number")
        metafunc.parametrize("round_number", range(rounds), indirect=True)


# --- lanes ----------------------------------------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

    class Lanes(LoadScopeScheduling):
        """Scheduler of lanes instead of classes: Spark's lane comes first once no worker runs clusters."""

        def _split_scope(self, nodeid: str) -> str:
            return lane_of(Path(config.rootpath, nodeid.partition("::")[0]).relative_to(TESTS).as_posix())

        def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            for other in self.nodes:
                if other is not node:
                    self._reschedule(other)

        def _reschedule(self, node: WorkerController) -> None:
            if SPARK in self.workqueue:
                # Spark's lane follows the last cluster test but one: a worker starts its last test when it knows the next.
                lanes = (units.get(CLUSTERS, {}) for units in self.assigned_work.values())
                clusters_run = any(list(lane.values()).count(False) > 2 for lane in lanes)
                if clusters_run and len(self.workqueue) == 1:
                    return
                self.workqueue.move_to_end(SPARK, last=clusters_run)
            super()._reschedule(node)

    config.option.loadscopereorder = False
    return Lanes(config, log)


# --- ports ------------------------------------------------------------------------------------------------------------------

PORTS = range(10_000, 21_000)
"""Ports below those of outgoing connections, which could take a port during a restart, and of clusters (lab/layout.py)."""
PORTS_AT_ONCE = 100


class Ports:
    """Source of ports, each given once. It claims a hundred at a time, with a lock that other runs on this machine respect."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.gettempdir(), f"kraftlab-test-ports-{os.getuid()}")
        self._directory.mkdir(exist_ok=True)
        self._blocks = iter(range(PORTS.start, PORTS.stop, PORTS_AT_ONCE))
        self._locks: list[IO[bytes]] = []
        self._ports = self._free()

    def __call__(self) -> int:
        return next(self._ports)

    def _free(self) -> Iterator[int]:
        for first in self._blocks:
            lock = open(self._directory / str(first), "ab")  # noqa: SIM115 (held as long as the run)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                continue
            self._locks.append(lock)
            yield from (port for port in range(first, first + PORTS_AT_ONCE) if self._is_free(port))
        raise RuntimeError(f"other runs hold all ports from {PORTS.start} to {PORTS.stop}; end some of them")

    def _is_free(self, port: int) -> bool:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
        return True

    def close(self) -> None:
        for lock in self._locks:
            lock.close()


@pytest.fixture(scope="session")
def new_port() -> Iterator[Callable[[], int]]:
    """Return a function that gives a free port, each only once on this machine during the run."""
    ports = Ports()
    yield ports
    ports.close()


# --- fork servers of clusters ---------------------------------------------------------------------------------------------------


class ForkedProcess:
    """A child of this process, with those parts of `subprocess.Popen` that clusters need."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._ended = os.pidfd_open(pid)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("fork server", timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._ended)
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


class ForkServers:
    """Source of the fork servers of this process's clusters; see fork_servers.py. It starts with the first cluster."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, descriptors: Collection[int], environment: Mapping[str, str]) -> Any:
        if environment:  # libraries that are loaded with the process
            return START_FORK_SERVER(descriptors, environment)
        (stdin, to_stdin), (of_stdout, stdout) = os.pipe(), os.pipe()
        request = msgspec.msgpack.encode({"directory": os.getcwd(), "environment": dict(os.environ)})
        with self._lock, adopting_orphans():
            channel = self._channel = self._channel or self._start()
            socket.send_fds(channel, [request], [stdin, stdout, 2, *descriptors])
            pid = int(channel.recv(20))
        os.close(stdin)
        os.close(stdout)
        return ForkedProcess(pid, open(to_stdin, "wb"), open(of_stdout, "rb"))

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, str(TESTS / "fork_servers.py"), str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd="/", start_new_session=True
            )
        return ours

    def close(self) -> None:
        if self._channel is not None and self._process is not None:
            self._channel.close()
            self._process.wait()


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Make processes whose parent ends meanwhile children of this process."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


PR_SET_CHILD_SUBREAPER = 36
START_FORK_SERVER = processes.start_fork_server


# --- what each folder costs -------------------------------------------------------------------------------------------------


@dataclass
class Cost:
    """Cost of one folder in seconds."""

    tests: int = 0
    passed_s: float = 0.0
    processor_s: float = 0.0
    longest_s: float = 0.0
    longest: str = ""


class Costs:
    """Sum of the costs in the reports of tests, printed at the end."""

    def __init__(self) -> None:
        self._costs: dict[str, Cost] = defaultdict(Cost)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown" and hasattr(report, "cost"):
            folder, passed_s, processor_s = report.cost
            cost = self._costs[folder]
            cost.tests += 1
            cost.passed_s += passed_s
            cost.processor_s += processor_s
            if passed_s > cost.longest_s:
                cost.longest_s, cost.longest = passed_s, report.nodeid.partition("/")[2]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self._costs) < 2:
            return
        terminalreporter.section("seconds per folder: passed, of processors, longest test")
        for folder, cost in sorted(self._costs.items(), key=lambda row: -row[1].passed_s):
            numbers = f"{cost.tests:>5} tests {cost.passed_s:>6.1f} {cost.processor_s:>6.1f} {cost.longest_s:>6.1f}"
            terminalreporter.write_line(f"{folder:<22} {numbers} {cost.longest}")
        terminalreporter.write_line(
            f"{'all':<22} {sum(cost.tests for cost in self._costs.values()):>5} tests "
            f"{sum(cost.passed_s for cost in self._costs.values()):>6.1f} "
            f"{sum(cost.processor_s for cost in self._costs.values()):>6.1f}"
        )


BEGUN = pytest.StashKey[tuple[float, float]]()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs())
    find_no_cluster_of_others(config)
    if sys.platform == "linux":
        servers = processes.start_fork_server = ForkServers()
        config.add_cleanup(servers.close)
    if hasattr(config, "workerinput"):
        # Workers ignore Ctrl-C and are killed in the end; with this handler they clean up after their tests.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        keep_clusters_apart()
        collect_from_both_ends(config)


def find_no_cluster_of_others(config: pytest.Config) -> None:
    """Give this process a state directory of its own, so that commands find only clusters that its tests started."""
    state = tempfile.TemporaryDirectory(prefix="kraftlab-test-state-")
    config.add_cleanup(state.cleanup)
    os.environ["XDG_STATE_HOME"] = state.name
    os.environ.pop("KRAFTLAB_BOOTSTRAP_SERVER", None)


def keep_clusters_apart() -> None:
    """Give each worker its own ports for clusters: two workers could choose the same."""
    count, own = int(os.environ["PYTEST_XDIST_WORKER_COUNT"]), int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    ports = cluster_plan._PORTS
    cluster_plan._PORTS = ports[len(ports) * (own % count) // count : len(ports) * (own % count + 1) // count]


def collect_from_both_ends(config: pytest.Config) -> None:
    """Let every other worker begin with the last folder; `pytest_collection_modifyitems` gives all workers the same order."""
    own = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    if own % 2 and [Path(argument).absolute() for argument in config.args] == [TESTS]:
        folders = sorted((path.parent for path in TESTS.glob("*/*") if path.suffix == ".py" or path.is_dir()), reverse=True)
        config.args = [str(folder) for folder in dict.fromkeys(folders) if folder.name != "__pycache__"]


def processor_time_s() -> float:
    """Return the processor time of this process and of its finished children."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    item.stash[BEGUN] = time.monotonic(), processor_time_s()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    report = yield
    if report.when == "teardown":
        passed, processor = item.stash[BEGUN]
        report.cost = module_of(item).partition("/")[0], time.monotonic() - passed, processor_time_s() - processor
    return report
