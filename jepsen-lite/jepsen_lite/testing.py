"""Faults and checks for tests of anything that talks to a cluster: the objects behind the fixtures of `pytest_plugin`.

A *story* is one test: its clock, its recorded calls, and the faults in force meanwhile. `Nemesis` breaks the cluster like
`kraftlab cluster`, with the same names of nodes, for the duration of a `with`. `Check` records calls and judges them. A story
that is not valid is kept as a run with a page, like the runs of `kraftlab chaos test`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kraftlab.checking.facts import Strike
from kraftlab.common.extras import not_installed

from .fault_plan import FaultPlan
from .history import FAIL, INFO, OK, History, Op, Outcome

if TYPE_CHECKING:
    from kraftlab.lab import LocalCluster
    from kraftlab.lab.faults.orders import Done

    from .verdicts import Verdict
    from .workload import Checker, Run

Names = str | Sequence[str]
"""Names of nodes as `kraftlab cluster` accepts them: "leader", "controller-3000,broker-0", ("followers", "broker-1")."""
UNDER_WAY = "under way"
"""The error of a call that has not ended yet."""


class Violated(AssertionError):
    """The recorded calls are not valid, or a checker could not decide."""


class Story:
    """The events of one test on one clock. Thread-safe."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.strikes: list[Strike] = []
        self._begun_ns = time.monotonic_ns()
        self._begun_at_ms = time.time_ns() // 1_000_000
        self._lock = threading.Lock()
        self._ops: list[Op] = []
        """By index. A call in progress is `info`: it may have taken effect."""
        self._processes: dict[int, int] = {}
        self._process_count = 0

    def now_ns(self) -> int:
        """Nanoseconds since the story began."""
        return time.monotonic_ns() - self._begun_ns

    def begin(self, f: str, key: str, value: object) -> Op:
        """Record a call of this thread that begins now. A thread is one process until one of its calls has an unknown outcome."""
        with self._lock:
            thread = threading.get_ident()
            if thread not in self._processes:
                self._processes[thread] = self._process_count
                self._process_count += 1
            index, process, now_ns = len(self._ops), self._processes[thread], self.now_ns()
            op = Op(
                index=index,
                process=process,
                f=f,
                key=key,
                value=value,
                outcome=INFO,
                invoked_ns=now_ns,
                ended_ns=now_ns,
                error=UNDER_WAY,
            )
            self._ops.append(op)
            return op

    def end(self, op: Op, outcome: Outcome, result: object, error: str) -> Op:
        """Record the end of a call."""
        with self._lock:
            ended = replace(op, outcome=outcome, result=result, error=error, ended_ns=self.now_ns())
            self._ops[op.index] = ended
            if outcome == INFO:
                self._processes.pop(threading.get_ident(), None)  # a nested call can have removed it
            return ended

    def run(self) -> Run:
        """Return the story so far as a run for checkers."""
        from .workload import Options, Run

        with self._lock:
            now_ns = self.now_ns()
            history = History(replace(op, ended_ns=now_ns) if op.error == UNDER_WAY else op for op in self._ops)
            strikes = tuple(sorted(self.strikes, key=lambda strike: strike.begin_ns))
        return Run(
            options=Options(seed=self.name, concurrency=self._process_count),
            history=history,
            strikes=strikes,
            healed_ns=max((strike.end_ns or 0 for strike in strikes), default=0),
            ended_ns=now_ns,
            started_at_ms=self._begun_at_ms,
        )


class Nemesis:
    """Break a cluster that was started with `allow_chaos`. Each method is a context manager that undoes its fault on exit.

    On exit a killed node is started again and may need a moment: `cluster.wait_ready()`. Messages that a cut held are delivered
    late. ClusterError if a fault cannot be brought about.
    """

    def __init__(self, cluster: LocalCluster, story: Story) -> None:
        from kraftlab.lab.faults.breaker import Breaker

        self.cluster = cluster
        self._story = story
        self._breaker = Breaker(cluster, lambda line: None)

    @property
    def leader(self) -> str:
        """The name of the active controller. ClusterError if there is none."""
        from kraftlab.lab import ClusterError

        status = self._order("status").status
        assert status is not None, "an order for the status returns the status"
        for node in status.nodes:
            if node.leads:
                return node.name
        raise ClusterError("there is no active controller; call cluster.wait_ready()")

    def kill(self, nodes: Names = "leader") -> AbstractContextManager[Done]:
        """kill -9."""
        return self._strike("kill", nodes)

    def pause(self, nodes: Names = "leader") -> AbstractContextManager[Done]:
        """SIGSTOP: connections stay, nothing answers."""
        return self._strike("pause", nodes)

    def isolate(self, nodes: Names = "leader", *, one_way: bool = False, reset: bool = False) -> AbstractContextManager[Done]:
        """Let nothing pass between these nodes and all others; with `one_way`, nothing from these nodes."""
        return self._strike("isolate", nodes, one_way=one_way, reset=reset)

    def cut(self, source: Names, target: Names, *, one_way: bool = False, reset: bool = False) -> AbstractContextManager[Done]:
        """Let nothing pass between the two groups. Messages wait, or with `reset` connections break."""
        return self._strike("cut", source, target, one_way=one_way, reset=reset)

    def partition(self, *groups: Names) -> AbstractContextManager[Done]:
        """Let nothing pass between the groups. Nodes in no group keep all their links."""
        return self._strike("partition", *groups)

    def slow(self, *nodes: Names, delay_ms: float, jitter_ms: float = 0.0) -> AbstractContextManager[Done]:
        """Delay messages between two groups, or between one group and all other nodes."""
        return self._strike("slow", *nodes, delay_ms=delay_ms, jitter_ms=jitter_ms)

    def lossy(
        self, *nodes: Names, loss: float = 0.0, duplicate: float = 0.0, reorder: float = 0.0
    ) -> AbstractContextManager[Done]:
        """Lose, duplicate or reorder messages with these probabilities, 0 to 1."""
        return self._strike("lossy", *nodes, loss=loss, duplicate=duplicate, reorder=reorder)

    def close(self) -> None:
        """Undo the faults still in force, and wait until the cluster is ready. ClusterError."""
        self._order("heal")
        self._breaker.close()
        self.cluster.wait_ready()

    @contextmanager
    def _strike(self, kind: str, *groups: Names, **how: Any) -> Iterator[Done]:
        begin_ns = self._story.now_ns()
        done = self._order(kind, *groups, **how)
        assert done.number is not None, f"{kind} is an order with a number"
        try:
            yield done
        finally:
            self._breaker.undo(done.number)
            ids = {node.name: node.node_id for node in self.cluster.plan.nodes}
            self._story.strikes.append(
                Strike(
                    kind=kind,
                    begin_ns=begin_ns,
                    end_ns=self._story.now_ns(),
                    nodes=tuple(ids[name] for name in done.nodes),
                    links=tuple((ids[source], ids[target]) for source, target in done.links),
                    detail=done.text,
                )
            )

    def _order(self, kind: str, *groups: Names, **how: Any) -> Done:
        from kraftlab.lab.faults.orders import Order

        names = tuple(tuple(group.split(",")) if isinstance(group, str) else tuple(group) for group in groups)
        return self._breaker.carry_out(Order(order=kind, names=names, **how))


class Check:
    """Record calls and judge them: `check.call("set", "x", 5, client.set, "x", 5)`, then `check(Linearizable(…))`.

    Thread-safe; each thread is a process. A run that is not valid is kept in `directory`.
    """

    def __init__(self, story: Story, directory: Path) -> None:
        self._story = story
        self._directory = directory

    def call(
        self,
        f: str,
        key: str,
        value: object,
        function: Callable[..., object],
        /,
        *arguments: object,
        unknown: tuple[type[Exception], ...] = (),
        refused: tuple[type[Exception], ...] = (),
        **named: object,
    ) -> Op:
        """Call the function and record the outcome: its result, a JSON value, as `ok`; an exception in `unknown` as `info`; an
        exception in `refused` as `fail`. So name in `refused` only exceptions that prove that nothing was done. These exceptions
        are not raised again: see `Op.outcome`. Any other exception is an error of the test or the tool; it is recorded as `info`
        and raised.
        """
        begun = self._story.begin(f, key, value)
        outcome: Outcome = INFO
        result, error = None, ""
        try:
            result = function(*arguments, **named)
            outcome, error = OK, ""
        except refused as exception:
            outcome, error = FAIL, _error_text(exception)
        except unknown as exception:
            error = _error_text(exception)
        except BaseException as exception:
            error = _error_text(exception)
            raise
        finally:
            op = self._story.end(begun, outcome, result, error)
        return op

    @property
    def history(self) -> History:
        """The calls recorded so far."""
        return self._story.run().history

    def __call__(self, *checkers: Checker) -> tuple[Verdict, ...]:
        """Return the verdicts on the calls recorded so far. Violated, with the page of the run or the reason why there is none,
        unless all are valid.
        """
        from .checkers.judgement import judge

        if not checkers:
            raise TypeError("check() needs a checker, e.g. check(Linearizable(lambda key: Register()))")
        run = self._story.run()
        verdicts = tuple(judge(run, checkers))
        wrong = [verdict for verdict in verdicts if verdict.valid is not True]
        if wrong:
            reasons = [
                f"{each.checker} is {'not valid' if each.valid is False else 'not decided'}: {each.reason}" for each in wrong
            ]
            raise Violated("\n".join([*reasons, self._where(run, verdicts)]))
        return verdicts

    def _where(self, run: Run, verdicts: tuple[Verdict, ...]) -> str:
        """Return where the run was kept. An error while keeping it must not hide the verdicts."""
        try:
            return f"see {self._kept(run, verdicts)}"
        except ModuleNotFoundError as error:
            return f"no run was kept: {not_installed(str(error.name), 'chaos')}"
        except Exception as error:
            return f"no run was kept: {type(error).__name__}: {error}"

    def _kept(self, run: Run, verdicts: tuple[Verdict, ...]) -> Path:
        """Write the run and its page; return the path of the page, or of the run if the packages for pages are not installed."""
        import platform

        from .store import PYTEST_WORKLOAD, RunDirectory, RunRecord

        directory = RunDirectory.new(self._directory, PYTEST_WORKLOAD, self._story.name)
        directory.write_plan(FaultPlan(seed=self._story.name))
        record = RunRecord(
            **run.facts(),
            workload=PYTEST_WORKLOAD,
            world="real",
            nemeses=tuple(dict.fromkeys(strike.kind for strike in run.strikes)),
            links="proxy",
            python=platform.python_version(),
            kernel=platform.release(),
            verdicts=verdicts,
        )
        directory.write_run(record, run)
        try:
            from .report.page import write_page
        except ModuleNotFoundError:
            return directory.path
        return write_page(directory)


def _error_text(exception: BaseException) -> str:
    """Return the first line of an exception."""
    return f"{type(exception).__name__}: {exception}".partition("\n")[0]
