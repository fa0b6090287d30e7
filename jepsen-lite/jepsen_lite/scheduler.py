"""Execute a workload: workers take invocations from its generator, let their clients perform them, and record the results.

A worker is a sequential process. When its operation ends as `info`, the worker continues as process + number of workers, with a
new client. All workers share one generator. Free workers wait in a queue, the most recently busy one first. When an operation
ends, or when the earliest time of a `Pending` has come, the generator is asked for each of them in turn, and only workers that
get an invocation wake.

All code here is plain coroutines over a `Drive`, which has a clock, runs coroutines concurrently and makes bells: trio drives a
real cluster, an event heap a simulated one. Coroutines await nothing else but the port that the drive gives to each process.

Every operation gets a row in the history: an operation that is interrupted by the end of the run is `info`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar, cast

from kraftlab.common.endpoint import Endpoint

from .generators import NOTHING, Context, Generator, Invocation, Pending, Source, generator, stagger, time_limit
from .history import INFO, OK, Op
from .workload import CallFailed, Client, Completion, DataPort, KafkaCalls, KafkaPort, Options, Port, Reply, Workload

T = TypeVar("T")

BROKEN_OFF = "the run was cut short"


class Bell(Protocol):
    """Wakes the coroutines that wait for it."""

    async def wait(self, until_ns: int | None) -> None:
        """Return when the bell rings after this call, or at `until_ns` on the drive's clock."""

    def ring(self) -> None:
        """Wake all current waiters. They continue later, not within this call."""


class Drive(Protocol):
    """The services of a world for the interpreter. `now_ns` is 0 when the run begins."""

    def now_ns(self) -> int: ...

    def port(self, process: int) -> Port:
        """Return the port for the client of this process alone; `setup` and `collect` use process -1."""

    def bell(self) -> Bell: ...

    async def together(self, tasks: Sequence[Callable[[], Coroutine[object, object, None]]]) -> None:
        """Run the tasks concurrently until all have ended. An error of one cancels the others and is raised."""


class _NamingPort:
    """A port that remembers the id of the last request, for operations that end without an answer."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self.controllers, self.brokers = port.controllers, port.brokers
        self.sleep, self.now_ns = port.sleep, port.now_ns
        self.named = ""

    async def call(self, api: str, request: Any, *, node: int | None = None, timeout_ms: int | None = None) -> Reply:
        name = request_name(request)
        self.named = name or self.named
        return await self._port.call(api, request, node=node, timeout_ms=timeout_ms)

    async def ask_peer(self, at: Endpoint, api: int, body: bytes, timeout_ms: int) -> memoryview:
        return await cast(DataPort, self._port).ask_peer(at, api, body, timeout_ms)

    async def in_kafka(self, call: Callable[[KafkaCalls], T]) -> T:
        return await cast(KafkaPort, self._port).in_kafka(call)


def request_name(request: Any) -> str:
    """Return the id of an admin request as in `Op.request_id`, "" if it has none."""
    header = request.header
    return f"{header.request_id.client_id.hex()}:{header.request_id.sequence}" if header.HasField("request_id") else ""


class GeneratorStuck(Exception):
    """All workers wait for one another: the generator is wrong."""


class Interpreter:
    """Plays one run. `ops` are the operations that have ended so far, unordered; `on_op` is called with each.

    Await setup(), clients(), final() and collect() in this order; the world heals between clients() and final().
    """

    def __init__(self, workload: Workload, options: Options, drive: Drive, on_op: Callable[[Op], None] = lambda op: None) -> None:
        self.workload, self.options, self.drive, self._on_op = workload, options, drive, on_op
        self.ops: list[Op] = []
        self.phase = ""
        workers = range(options.concurrency)
        self._processes = list(workers)
        self._clients: list[Client | None] = [None for _ in workers]
        self._succeeded = [0 for _ in workers]
        self._random = [options.random(f"worker {worker}") for worker in workers]
        self._begun = 0
        self._stopped = False
        self._generator: Generator = NOTHING
        self._bells = [drive.bell() for _ in workers]
        self._waiting: list[int] = []
        """The queue of free workers."""
        self._given: dict[int, Invocation] = {}
        """Worker → its invocation, until the worker wakes."""
        self._clock_bell = drive.bell()
        self._clock_ns: int | None = None
        """The time at which the queue is served next if no operation ends earlier."""

    async def setup(self) -> None:
        """Prepare the cluster. CallFailed."""
        self.phase = "setup"
        if self.workload.setup is not None:
            await self.workload.setup(self.options, self.drive.port(-1))

    async def clients(self) -> None:
        """Run the workload's generator at the rate and for the time of the options. GeneratorStuck."""
        source: Source = self.workload.generator(self.options)
        if self.options.rate > 0:
            source = stagger(1 / self.options.rate, source)
        await self._run("clients", time_limit(self.options.time_s, source))

    async def final(self) -> None:
        """Run the final phase without a rate. GeneratorStuck."""
        if self.workload.final is not None:
            await self._run("final", self.workload.final(self.options))

    async def collect(self) -> dict[str, object]:
        """Return the additional data of the workload; {} if there is none."""
        self.phase = "collect"
        if self.workload.collect is None:
            return {}
        collected: dict[str, Any] = await self.workload.collect(self.options, self.drive.port(-1))
        return collected

    async def _run(self, phase: str, source: Source) -> None:
        self.phase, self._generator, self._stopped = phase, generator(source), False
        workers = range(self.options.concurrency)
        self._waiting, self._given, self._clock_ns = [*workers], {}, None
        self._serve_queue()
        await self.drive.together([*map(self._worker, workers), self._serve_when_due])

    def _worker(self, worker: int) -> Callable[[], Coroutine[Any, Any, None]]:
        async def work() -> None:
            while (invocation := await self._next(worker)) is not None:
                await self._carry_out(worker, invocation)
                self._waiting.insert(0, worker)
                self._serve_queue()

        return work

    async def _next(self, worker: int) -> Invocation | None:
        """Return the next invocation of this worker, None if there are no more for anybody."""
        while worker not in self._given and not self._stopped:
            await self._bells[worker].wait(None)
        return self._given.pop(worker, None)

    def _serve_queue(self) -> None:
        """Ask the generator for each free worker. GeneratorStuck."""
        earliest_ns: int | None = None
        for worker in tuple(self._waiting):
            if self._stopped:
                return
            what = self._next_for(worker)
            if isinstance(what, Invocation):
                self._waiting.remove(worker)
                self._given[worker] = what
                self._bells[worker].ring()
            elif what is None:
                self._stop()
            elif what.until_ns is not None and (earliest_ns is None or what.until_ns < earliest_ns):
                earliest_ns = what.until_ns
        if earliest_ns is None and len(self._waiting) == self.options.concurrency and not self._stopped:
            raise GeneratorStuck(
                f"all {self.options.concurrency} workers wait for one another in the phase {self.phase!r} of "
                f"{self.workload.name}; its generator returns Pending() although no worker is busy"
            )
        if earliest_ns is not None and (self._clock_ns is None or earliest_ns < self._clock_ns):
            self._clock_ns = earliest_ns
            self._clock_bell.ring()

    def _next_for(self, worker: int) -> Invocation | Pending | None:
        """Ask the generator for one worker."""
        now_ns, process, random = self.drive.now_ns(), self._processes[worker], self._random[worker]
        answer = self._generator.next(Context(now_ns, process, worker, self.options.concurrency, random, self._succeeded[worker]))
        if answer is None:
            return None
        what, self._generator = answer
        return what

    async def _serve_when_due(self) -> None:
        """Serve the queue when the time of a `Pending` has come."""
        while not self._stopped:
            await self._clock_bell.wait(self._clock_ns)
            if self._clock_ns is not None and self._clock_ns <= self.drive.now_ns():
                self._clock_ns = None
                self._serve_queue()

    def _stop(self) -> None:
        """End the phase: the generator has no more invocations."""
        self._stopped = True
        for bell in (*self._bells, self._clock_bell):
            bell.ring()

    async def _carry_out(self, worker: int, invocation: Invocation) -> None:
        process, invoked_ns, index = self._processes[worker], self.drive.now_ns(), self._begun
        self._begun += 1
        client = self._clients[worker]
        if client is None:
            client = self._clients[worker] = self.workload.new_client(self.options, process)
        port = _NamingPort(self.drive.port(process))
        completion: Completion | None = None
        try:
            completion = await client.invoke(invocation, port)
        except CallFailed as failed:
            completion = Completion(failed.outcome, None, failed.error, failed.node, failed.offset, failed.epoch, port.named)
        finally:
            completion = completion or Completion(INFO, error=BROKEN_OFF, request_id=port.named)
            self._ended(worker, invocation, index, invoked_ns, completion)

    def _ended(self, worker: int, invocation: Invocation, index: int, invoked_ns: int, completion: Completion) -> None:
        op = Op(
            index=index,
            process=self._processes[worker],
            f=invocation.f,
            key=invocation.key,
            value=invocation.value,
            outcome=completion.outcome,
            result=completion.result,
            invoked_ns=invoked_ns,
            ended_ns=self.drive.now_ns(),
            error=completion.error,
            request_id=completion.request_id,
            node=completion.node,
            offset=completion.offset,
            epoch=completion.epoch,
        )
        self.ops.append(op)
        self._succeeded[worker] += op.outcome == OK
        if op.outcome == INFO:
            self._processes[worker] += self.options.concurrency
            self._clients[worker] = None
        self._on_op(op)
