"""PySyncObj beside us: three processes on loopback with its journal on disk, written through the leader's replicated method.

It counts a command once a majority has journalled it. Its settings are its defaults, but for the journal and for a fresh
directory.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time

import msgspec
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, SyncObjException, replicated  # type: ignore[import-untyped]

from .measure import CommitParameters, CommitResult, percentile, run_nodes

SYSTEM = "PySyncObj"
DOOR = "replicated call"


def measure(parameters: CommitParameters) -> CommitResult:
    return run_nodes(__spec__.name, parameters)


class Register(SyncObj):  # type: ignore[misc]
    """Keeps the last value written."""

    def __init__(self, own: str, others: list[str], journal: str) -> None:
        super().__init__(own, others, SyncObjConf(journalFile=journal))
        self.value: object = None

    @replicated  # type: ignore[untyped-decorator]
    def write(self, value: object) -> int:
        self.value = value
        return 1


class Workload:
    """The measurement itself, on the leader."""

    def __init__(self, register: Register, parameters: CommitParameters) -> None:
        self._register = register
        self._parameters = parameters
        self._small = bytes(parameters.record_bytes)

    def timed_ms(self, value: object) -> float:
        """One write; one that was discarded, as happens around its elections, is made again and the time goes on."""
        started = time.perf_counter()
        while True:
            try:
                self._register.write(value, sync=True, timeout=30)
                return (time.perf_counter() - started) * 1000
            except SyncObjException:
                time.sleep(0.01)

    def commits_per_second(self, in_flight: int) -> float:
        """Keeps `in_flight` calls under way by starting the next in the callback of each."""
        deadline = time.perf_counter() + self._parameters.seconds
        lock = threading.Lock()
        finished = threading.Event()
        done = 0
        running = in_flight

        def completed(_: object, failure: int) -> None:
            nonlocal done, running
            with lock:
                done += failure == FAIL_REASON.SUCCESS
                if time.perf_counter() >= deadline:
                    running -= 1
                    if not running:
                        finished.set()
                    return
            self._register.write(self._small, callback=completed)

        started = time.perf_counter()
        for _ in range(in_flight):
            self._register.write(self._small, callback=completed)
        finished.wait(self._parameters.seconds + 60)
        return done / (time.perf_counter() - started)

    def run(self) -> CommitResult:
        for _ in range(5):
            self.timed_ms(self._small)
        serial: list[float] = []
        deadline = time.perf_counter() + self._parameters.seconds
        while time.perf_counter() < deadline:
            serial.append(self.timed_ms(self._small))
        throughput = {count: self.commits_per_second(count) for count in self._parameters.in_flight}
        bulk_value = [self._small] * self._parameters.bulk_records
        bulk = [self.timed_ms(bulk_value) for _ in range(self._parameters.bulk_runs)]
        return CommitResult(
            system=SYSTEM,
            door=DOOR,
            serial_p50_ms=percentile(serial, 50),
            serial_p99_ms=percentile(serial, 99),
            commits_per_second=throughput,
            bulk_ms=percentile(bulk, 50),
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--ports", required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--report", type=int, required=True)
    parser.add_argument("--parameters", required=True)
    arguments = parser.parse_args()
    parameters = msgspec.json.decode(arguments.parameters, type=CommitParameters)
    addresses = [f"127.0.0.1:{port}" for port in arguments.ports.split(",")]
    own = addresses.pop(arguments.index)
    register = Register(own, addresses, os.path.join(arguments.directory, "journal"))
    threading.Thread(target=measure_if_leader, args=(register, own, arguments.report, parameters), daemon=True).start()
    sys.stdin.buffer.read()
    register.destroy()
    os._exit(0)


def measure_if_leader(register: Register, own: str, report: int, parameters: CommitParameters) -> None:
    while not (register.isReady() and register._getLeader() is not None):
        time.sleep(0.05)
    time.sleep(1.0)
    if str(register._getLeader()) == own:
        os.write(report, msgspec.json.encode(Workload(register, parameters).run()) + b"\n")


if __name__ == "__main__":
    main()
