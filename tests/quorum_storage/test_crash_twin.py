"""Random appends, cuts, flushes, crashes and restarts against a naive list: nothing flushed is lost, nothing cut comes back."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from kraftlab.quorum.storage.metadata_log import Taken
from kraftlab.simulation.consensus.simulated_file_system import PowerCut, SimulatedFileSystem


class Twin:
    """The log under test beside a list of what it must hold."""

    def __init__(self, seed, builder, open_log):
        self.random = Random(seed)
        self.disk = SimulatedFileSystem(Random(f"{seed}/disk"))
        self.builder = builder
        self.options = {
            "segment_bytes": 4096 + self.random.choice((300, 600, 3000, 100_000)),
            "preallocate_bytes": self.random.choice((4096, 5000, 8192)),
            "cache_bytes": self.random.choice((0, 200, 2000)),
        }
        self.open_log = open_log
        self.epoch = 1
        self.stamp = 0
        self.seen: list = []
        self.durable: list = []
        self.taken: tuple[Taken, list, int] | None = None
        self.lowest_cut: int | None = None
        self.log = self.open_log(self.disk, **self.options)

    def append(self):
        chunk = []
        for _ in range(self.random.randint(1, 4)):
            base = self.seen[-1].end_offset if self.seen else 0
            if self.stamp < base and self.random.random() < 0.5:
                self.stamp = self.random.randint(self.stamp, base)
            body = self.random.choice((0, 10, 50, 400, 9000 if self.random.random() < 0.05 else 5)) + 1
            records = self.random.randint(1, 5)
            made = self.builder.next(self.seen, epoch=self.epoch, records=records, body_bytes=body, stamp=self.stamp)
            self.seen.append(made)
            chunk.append(made)
        self.log.append(chunk[0].base_offset, chunk[-1].end_offset, b"".join(b.data for b in chunk))

    def truncate(self):
        allowed = [n for n, b in enumerate(self.seen) if b.base_offset >= self.stamp]
        if allowed:
            keep = self.random.choice(allowed)
            self.log.truncate(self.seen[keep].base_offset)
            del self.seen[keep:]
            self.lowest_cut = keep if self.lowest_cut is None else min(keep, self.lowest_cut)
            self.epoch += self.random.randint(0, 1)

    def begin(self):
        if self.taken is None:
            cut = len(self.durable) if self.lowest_cut is None else min(self.lowest_cut, len(self.durable))
            self.taken = (self.log.begin_flush(), list(self.seen), cut)
            self.lowest_cut = None

    def finish(self):
        if self.taken is not None:
            self.log.finish_flush(self.taken[0])
            self.durable, self.taken = self.taken[1], None
            assert self.log.durable_end_offset == (self.durable[-1].end_offset if self.durable else 0)

    def crash(self):
        power_cut = self.random.random() < 0.8
        allowed = [self.durable]
        if self.taken is not None and self.random.random() < 0.8:
            taken, wanted, cut = self.taken
            allowed += [self.durable[:n] for n in range(cut, len(self.durable))]
            allowed += [wanted[:n] for n in range(min(cut, len(wanted)), len(wanted) + 1)]
            self.disk.operations_left = self.random.randint(0, 12)
            try:
                self.log.finish_flush(taken)
                allowed = [wanted]
            except PowerCut:
                pass
        self.disk.crash(power_cut=power_cut)
        if self.random.random() < 0.3:
            self.disk.operations_left = self.random.randint(0, 5)
            with suppress(PowerCut):
                self.open_log(self.disk, **self.options)
            self.disk.crash(power_cut=True)
        self.log = self.open_log(self.disk, **self.options)
        found = [h.crc for h in self.log.batches()]
        matching = [a for a in allowed if [b.crc for b in a] == found]
        assert matching, f"recovered {self.log.end_offset}, allowed {[a[-1].end_offset if a else 0 for a in allowed]}"
        self.durable = list(matching[0])
        self.seen = list(matching[0])
        self.stamp = min(self.stamp, self.log.end_offset)
        self.taken, self.lowest_cut = None, None
        self.epoch += 1

    def check_reads(self):
        assert self.log.end_offset == (self.seen[-1].end_offset if self.seen else 0)
        if self.seen:
            first = self.random.randrange(len(self.seen))
            limit = self.random.choice((0, 100, 500, 100_000))
            expected, size = b"", 0
            for made in self.seen[first:]:
                if expected and size + len(made.data) > limit:
                    break
                expected += made.data
                size += len(made.data)
            assert self.log.read(self.seen[first].base_offset, limit) == expected
        assert self.log.read(self.log.end_offset, 100) == b""


@pytest.mark.parametrize("block", range(8))
def test_log_equals_its_twin_through_any_crash(block, builder, open_log):
    for seed in range(block * 40, block * 40 + 40):
        twin = Twin(seed, builder, open_log)
        actions = (twin.append,) * 5 + (twin.truncate,) * 2 + (twin.begin,) * 3 + (twin.finish,) * 3 + (twin.crash,)
        for step in range(120):
            try:
                twin.random.choice(actions)()
                twin.check_reads()
            except Exception as error:
                raise AssertionError(f"seed {seed}, step {step}: {error}") from error
