"""The whole suite: its groups, the time of each folder, and clocks that jump.

`make test` runs three workers (pytest-xdist). All tests of a group run in one worker, in the order of the folders. Tests with
clusters of processes have deadlines in real time, so they are one group: a fixture that starts a cluster asks for the fixture
`starts_clusters`, and a test without such a fixture has the mark `cluster`. Other tests have no ports for a cluster. Tests with a
browser, which ask for the fixture `browser`, are in the same group. Tests of Spark are a second group, and every other module is
a group of its own. Groups start in this order: clusters, tests with deadlines within their own process, long modules, all other
modules, Spark. All but the clusters last about as long as these, so Spark, which needs two processors, runs beside few clusters
or none.

All workers collect the same tests, and most of that time rewrites assertions. Every second worker begins at the other end, and
finds the byte code of the other half (`make test` allows byte code).

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
import resource
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
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import msgspec
import pytest
from hypothesis import is_hypothesis_test, settings

from kraftlab.lab import LocalCluster, processes
from kraftlab.lab.cluster_plan import PORTS_VARIABLE

settings.register_profile("unhurried", settings(), deadline=None, max_examples=40)
settings.load_profile("unhurried")

TESTS = Path(__file__).parent
CLOCK = "autojump_clock"
CLUSTER = "cluster"
BROWSER = "browser"
SPARK = "spark"
STARTS_CLUSTERS = "starts_clusters"
EARLY_MODULES = ("quorum/driver/", "rpc/", "client/", "broker/", "quorum/storage/", "cli/", "demo/")
"""Modules that run beside clusters: they wait for sockets, threads and processes, with deadlines in real time."""
LONG_MODULES = ("jepsen_lite/", "simulation/", "controller/")
"""Modules that come next: a long module at the end would keep one worker busy alone."""
QUEUE = (*EARLY_MODULES, *LONG_MODULES)


def group_of(item: pytest.Item) -> str:
    """Return the group of a test: all tests of a group run one after the other in one worker. Most modules are a group each."""
    marks = {SPARK: SPARK, CLUSTER: CLUSTER, BROWSER: CLUSTER}
    return next((group for mark, group in marks.items() if item.get_closest_marker(mark)), module_of(item))


def rank(item: pytest.Item) -> int:
    """Return the position of a test in the queue: clusters come first, Spark last."""
    group = group_of(item)
    if group in (CLUSTER, SPARK):
        return -1 if group == CLUSTER else len(QUEUE) + 1
    return next((place for place, prefix in enumerate(QUEUE) if group.startswith(prefix)), len(QUEUE))


def module_of(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else item.path.as_posix()


def has_a_clock_that_stands_still(item: pytest.Item) -> bool:
    """Return whether only a fixture of the test has the clock: pytest-trio ignores that, and real time passes."""
    if not isinstance(item, pytest.Function) or CLOCK not in item.fixturenames:
        return False
    return CLOCK not in inspect.signature(item.function).parameters


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        for mark, fixture in ((CLUSTER, STARTS_CLUSTERS), (BROWSER, BROWSER)):
            if fixture in fixtures:
                item.add_marker(mark)
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
        if has_a_clock_that_stands_still(item):
            raise pytest.UsageError(f"{item.nodeid} has {CLOCK} by a fixture only; name it as a parameter of the test")
    items.sort(key=lambda item: (rank(item), module_of(item).partition("/")[0]))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run beside other workers if their tests are not grouped."""
    if hasattr(session.config, "workerinput") and not all("@" in item.nodeid for item in session.items[:1]):
        found = f"pytest {version('pytest')} and pytest-xdist {version('pytest-xdist')}"
        raise pytest.UsageError(f"{found} put tests in no groups, so clusters would run beside each other; install pytest<9.2")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=1, metavar="N", help="play every property test N times")
    parser.addoption("--pictures", action="store_true", help="write the pictures of docs/console anew (make console)")


@pytest.fixture
def round_number(request: pytest.FixtureRequest) -> int:
    """Number of the round, of `--rounds`."""
    return int(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    rounds = metafunc.config.getoption("--rounds")
    if rounds > 1 and is_hypothesis_test(metafunc.function):
        metafunc.fixturenames.append("round_number")
        metafunc.parametrize("round_number", range(rounds), indirect=True)


# --- ports ------------------------------------------------------------------------------------------------------------------

PORTS = range(10_000, 21_000)
"""Ports below those of outgoing connections, which could take a port during a restart, and of clusters (lab/layout.py)."""
PORTS_AT_ONCE = 100
PORTS_OF_CLUSTERS = 11_000
NO_PORTS = f"not for tests without the marker {CLUSTER!r}"


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


@pytest.fixture(scope="session")
def starts_clusters() -> None:
    """Mark the tests of every fixture that asks for this one as tests that start or use a cluster."""


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, starts_clusters: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """Cluster of the module's `CLUSTER = (controllers, brokers, log directories)`, with its `OVERRIDES` if it has some."""
    overrides = getattr(request.module, "OVERRIDES", None)
    with LocalCluster(tmp_path_factory.mktemp("lab"), *request.module.CLUSTER, overrides=overrides) as running:
        yield running


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a test ports for clusters, each worker its own. A test without the mark has none: clusters could run side by side."""
    os.environ[PORTS_VARIABLE] = ports_of_clusters() if item.get_closest_marker(CLUSTER) else NO_PORTS


def ports_of_clusters() -> str:
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    own = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % count
    return f"{PORTS.stop + PORTS_OF_CLUSTERS * own // count}-{PORTS.stop + PORTS_OF_CLUSTERS * (own + 1) // count - 1}"


# --- little memory ----------------------------------------------------------------------------------------------------------

MEMORY_BYTES = 256 * 1024 * 1024


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Leave this process 256 MiB more than it has."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + MEMORY_BYTES, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


# --- disks ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def disks_without_waiting() -> Iterator[None]:
    """Leave what this process writes to the page cache, for modules in which no disk loses its power. Tests about flushes
    replace these functions themselves.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda descriptor: None)
        yield


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
                cost.longest_s, cost.longest = passed_s, report.nodeid.partition("/")[2].partition("@")[0]

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
        collect_from_both_ends(config)


def find_no_cluster_of_others(config: pytest.Config) -> None:
    """Give this process a state directory of its own, so that commands find only clusters that its tests started."""
    state = tempfile.TemporaryDirectory(prefix="kraftlab-test-state-")
    config.add_cleanup(state.cleanup)
    os.environ["XDG_STATE_HOME"] = state.name
    os.environ.pop("KRAFTLAB_BOOTSTRAP_SERVER", None)


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
