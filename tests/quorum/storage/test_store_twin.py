"""A whole directory against a naive model, through snapshots, cleaning, installs, damage, repairs, crashes and restarts.

Nothing that was flushed is lost unnoticed, nothing that was cut returns, the log always continues from its snapshot, and a
damaged byte is never destroyed before its data is fetched again.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from kraftlab.quorum.core.batch import read_header
from kraftlab.quorum.storage import FsyncFailed, StorageFull
from kraftlab.quorum.storage.identity import partition_directory
from kraftlab.simulation.consensus.simulated_file_system import PowerCut, SimulatedFileSystem

DIRECTORY = partition_directory("/data")


class Twin:
    """The store under test beside the whole history it stands for: batches from 0, of which it holds those from its start on."""

    def __init__(self, seed, builder, open_store, *, rots):
        self.random = Random(seed)
        self.disk = SimulatedFileSystem(Random(f"{seed}/disk"))
        self.builder = builder
        self.options = {
            "segment_bytes": 4096 + self.random.choice((300, 600, 3000)),
            "preallocate_bytes": self.random.choice((4096, 5000, 8192)),
            "cache_bytes": self.random.choice((0, 200, 2000)),
        }
        self.rots = rots
        self.open_store = open_store
        self.epoch = 1
        self.committed = 0
        self.seen: list = []
        self.durable: list = []
        self.taken = None
        self.lowest_cut: int | None = None
        self.taken_snapshots: list = []
        self.cleaned_to = 0
        self.promised = 0
        self.store = open_store(self.disk, **self.options)

    @property
    def log(self):
        return self.store.log

    def end(self, batches):
        return batches[-1].end_offset if batches else 0

    def append(self):
        chunk = []
        for _ in range(self.random.randint(1, 4)):
            base = self.end(self.seen)
            stamp = min(base, self.committed)
            body = self.random.choice((0, 10, 50, 400, 9000 if self.random.random() < 0.05 else 5)) + 1
            made = self.builder.next(self.seen, epoch=self.epoch, records=self.random.randint(1, 5), body_bytes=body, stamp=stamp)
            self.seen.append(made)
            chunk.append(made)
        self.log.append(chunk[0].base_offset, chunk[-1].end_offset, b"".join(b.data for b in chunk))

    def commit(self):
        """Others hold it too: up to any batch's end."""
        allowed = [b.end_offset for b in self.seen if b.end_offset > self.committed]
        if allowed:
            self.committed = self.random.choice(allowed)

    def truncate(self):
        allowed = [n for n, b in enumerate(self.seen) if b.base_offset >= max(self.committed, self.log.start_offset)]
        if allowed:
            keep = self.random.choice(allowed)
            self.log.truncate(self.seen[keep].base_offset)
            del self.seen[keep:]
            self.lowest_cut = keep if self.lowest_cut is None else min(keep, self.lowest_cut)
            self.epoch += self.random.randint(0, 1)

    def snapshot(self):
        newest = max((s.end_offset for s in self.taken_snapshots), default=0)
        low = max(self.log.start_offset, newest)
        allowed = [b for b in self.seen if low < b.end_offset <= self.committed]
        if not allowed:
            return
        made = self.random.choice(allowed)
        if self.random.random() < 0.15:
            self.disk.operations_left = self.random.randint(0, 6)
            try:
                self.builder.snapshot(self.store, made)
            except PowerCut:
                self.taken_snapshots.append(made)
                self.crash(power_cut=True, unsure=made)
                return
            self.disk.operations_left = None
        else:
            self.builder.snapshot(self.store, made)
        self.taken_snapshots.append(made)

    def clean(self):
        on_disk = self.store.snapshots.ids()
        if len(on_disk) > 1 or (on_disk and self.log.start_offset < on_disk[0].offset):
            start = self.random.choice(on_disk)
            self.log.clean(start)
            self.cleaned_to = max(self.cleaned_to, start.offset)

    def install(self):
        """A leader's snapshot of a history that has left ours behind, or ours that goes further."""
        if self.promised:
            return
        keep = [n for n, b in enumerate(self.seen) if b.base_offset >= self.committed]
        history = self.seen[: self.random.choice(keep)] if keep else list(self.seen)
        self.epoch += 1
        for _ in range(self.random.randint(1, 6)):
            history.append(self.builder.next(history, epoch=self.epoch, stamp=min(self.committed, self.end(history))))
        self.log.install(history[-1].end, self.builder.copy(self.store, history[-1]))
        self.committed = self.end(history)
        self.seen, self.installing = history, history[-1]
        self.lowest_cut = len(history)

    installing = None

    def begin(self):
        if self.taken is None:
            cut = len(self.durable) if self.lowest_cut is None else min(self.lowest_cut, len(self.durable))
            self.taken = (self.log.begin_flush(), list(self.seen), cut, self.installing)
            self.lowest_cut, self.installing = None, None

    def finish(self):
        if self.taken is None:
            return
        if self.random.random() < 0.1:
            self.disk.full = True
            with suppress(StorageFull):
                self.log.finish_flush(self.taken[0])
                self.flushed()
            self.disk.full = False
            if self.taken is not None:
                # Partly done: what of it counts is known after the next flush.
                self.log.finish_flush(self.log.begin_flush())
                self.taken = (self.taken[0], list(self.seen), 0, self.installing or self.taken[3])
                self.lowest_cut, self.installing = None, None
                self.flushed()
            return
        self.log.finish_flush(self.taken[0])
        self.flushed()

    def flushed(self):
        _, self.durable, _, installed = self.taken
        self.taken = None
        if installed is not None:
            self.taken_snapshots = [installed, *(s for s in self.taken_snapshots if s.end_offset > installed.end_offset)]
            self.cleaned_to = max(self.cleaned_to, installed.end_offset)
        assert self.log.durable_end_offset == self.end(self.durable)

    def end_repair(self):
        """What was lost comes from the leader."""
        if not self.promised or self.taken is not None:
            return
        self.begin()
        self.finish()
        if self.log.durable_end_offset >= self.promised:
            self.store.end_repair()
            self.promised = 0
            assert not [name for name in self.disk.names(DIRECTORY) if "damaged" in name or name == "repair"]

    # --- what may be found after a crash -----------------------------------------------------------------------------------

    def crash(self, *, power_cut=None, unsure=None):
        power_cut = self.random.random() < 0.8 if power_cut is None else power_cut
        allowed = [self.durable]
        possible = list(self.taken_snapshots)
        unsure_snapshots = [unsure] if unsure is not None else []
        if self.taken is not None and unsure is None and self.random.random() < 0.8:
            taken, wanted, cut, installed = self.taken
            if installed is None:
                allowed += [self.durable[:n] for n in range(cut, len(self.durable))]
                allowed += [wanted[:n] for n in range(min(cut, len(wanted)), len(wanted) + 1)]
            else:
                allowed += [wanted[:n] for n in range(wanted.index(installed) + 1, len(wanted) + 1)]
                possible.append(installed)
                unsure_snapshots = [installed, *self.taken_snapshots]
            self.disk.operations_left = self.random.randint(0, 14)
            self.disk.fsync_fails = self.random.random() < 0.2
            try:
                self.log.finish_flush(taken)
                allowed = [wanted]
                if installed is not None:
                    unsure_snapshots.remove(installed)
            except (PowerCut, FsyncFailed):
                pass
        self.disk.crash(power_cut=power_cut)
        damaged = self.rot() if self.rots and self.random.random() < 0.3 else None
        before = self.disk.snapshot()
        while self.random.random() < 0.3:
            self.disk.operations_left = self.random.randint(0, 12)
            with suppress(PowerCut):
                self.open_store(self.disk, **self.options)
            self.disk.crash(power_cut=True)
        self.store = self.open_store(self.disk, **self.options)
        self.check_found(allowed, possible, unsure_snapshots, damaged, before)

    def rot(self):
        """Flip a bit, or lose a file, of the log or its snapshots."""
        names = [n for n in self.disk.names(DIRECTORY) if n.endswith((".log", ".checkpoint"))]
        if not names:
            return None
        path = f"{DIRECTORY}/{self.random.choice(names)}"
        if self.random.random() < 0.2:
            self.disk.remove(path)
            self.disk.sync_directory(DIRECTORY)
            return path
        file = self.disk.open(path)
        data = file.pread(file.size(), 0)
        if not data:
            return None
        position = self.random.randrange(max(1, len(data.rstrip(b"\0"))))
        file.pwrite(bytes([data[position] ^ (1 << self.random.randrange(8))]), position)
        file.fdatasync()
        return path

    def check_found(self, allowed, possible, unsure, damaged, before):
        found = [h.crc for h in self.log.batches()]
        start, ids = self.log.start, self.store.snapshots.ids()
        assert start.offset == (ids[0].offset if ids else 0), "the log does not start at its oldest snapshot"
        by_id = {s.end: s for s in possible}
        assert set(ids) <= set(by_id), f"unknown snapshots {ids}"
        view = self.store.log_view()
        for position in ids:
            assert view.is_boundary(position.offset), f"snapshot {position} is not on the log"
            assert view.crc_at(position.offset) == by_id[position].crc
        sure = [s for s in possible if s not in unsure and s.end_offset >= self.cleaned_to]
        matching = None
        for chain in allowed:
            for head in self.histories(chain, [by_id[i] for i in ids]):
                if self.is_found(head, found):
                    matching = head
        repairing = self.store.boot.repair_until
        if damaged is None and not self.promised:
            assert matching is not None, f"recovered {start}..{self.log.end_offset}, {[self.end(a) for a in allowed]}, {ids}"
            missing = [s for s in sure if s.end not in ids and s.end_offset > start.offset]
            assert not missing, f"lost the snapshots {missing}"
            assert not repairing
        else:
            matching = self.check_rotten(allowed, found, before)
        self.durable, self.seen = list(matching), list(matching)
        self.taken_snapshots = [by_id[i] for i in ids]
        self.promised = repairing
        if not repairing:
            self.committed = max(min(self.committed, self.log.end_offset), start.offset, *(i.offset for i in ids))
        else:
            # The others keep what is committed; this node gets the same again.
            self.committed = max(self.log.high_watermark_stamp, start.offset, *(i.offset for i in ids))
        self.cleaned_to = start.offset
        self.taken, self.lowest_cut, self.installing = None, None, None
        self.epoch += 1

    def is_found(self, history, found):
        """Whether the log holds what is left of `history`."""
        held = [b.crc for b in history if b.base_offset >= self.log.start_offset]
        last_crc = history[-1].crc if history else 0
        return held == found and (self.end(history), last_crc) == (self.log.end_offset, self.store.log_view().last_crc)

    def histories(self, chain, snapshots):
        """A chain as it is, or as far as a snapshot stands for more."""
        yield chain
        for snapshot in snapshots:
            if snapshot not in chain:
                for source in (self.seen, *([self.taken[1]] if self.taken else [])):
                    if snapshot in source:
                        yield source[: source.index(snapshot) + 1]

    def check_rotten(self, allowed, found, before):
        """What is left is a part of what was there; what was promised and is not there is known."""
        sources = [*allowed, self.seen, *([self.taken[1]] if self.taken else [])]
        whole = None
        for chain in sources:
            for count in range(len(chain), -1, -1):
                head = chain[:count]
                if self.is_found(head, found):
                    whole = head
        assert whole is not None, "the log holds something that never was there"
        repairing = self.store.boot.repair_until
        assert repairing >= self.promised or self.log.end_offset >= self.promised, "a promise was forgotten"
        assert not repairing or repairing > self.log.end_offset
        was = b"".join(data for path, data in before.items() if path.endswith(".log"))
        intact = [made for made in self.durable if made.data in was]
        if max((read_header(made.data).high_watermark for made in intact), default=0) > self.log.end_offset:
            assert repairing >= intact[-1].end_offset, "what was acknowledged is forgotten"
            everything = b"".join(self.disk.snapshot().values())
            for made in intact:
                if made.base_offset >= self.log.end_offset:
                    assert made.data in everything, f"the batch at {made.base_offset} was destroyed"
        return whole

    def check_reads(self):
        assert self.log.end_offset == self.end(self.seen)
        held = [b for b in self.seen if b.base_offset >= self.log.start_offset]
        if held:
            first = self.random.randrange(len(held))
            limit = self.random.choice((0, 100, 500, 100_000))
            expected = b""
            for made in held[first:]:
                if expected and len(expected) + len(made.data) > limit:
                    break
                expected += made.data
            assert self.log.read(held[first].base_offset, limit) == expected
        assert self.log.read(self.log.end_offset, 100) == b""
        assert [h.crc for h in self.log.batches()] == [b.crc for b in held]
        for position in self.store.snapshots.ids():
            assert len(list(self.store.snapshots.reader(position).bodies())) == 3


@pytest.mark.parametrize("rots", [False, True], ids=["sound disks", "rot"])
@pytest.mark.parametrize("block", range(4))
def test_directory_equals_its_twin_through_anything(block, rots, builder, open_store):
    for seed in range(block * 30, block * 30 + 30):
        twin = Twin(seed, builder, open_store, rots=rots)
        actions = (
            (twin.append,) * 5
            + (twin.truncate,)
            + (twin.commit,) * 2
            + (twin.snapshot, twin.clean, twin.install, twin.end_repair)
            + (twin.begin,) * 3
            + (twin.finish,) * 3
            + (twin.crash,)
        )
        trail = []
        for step in range(100):
            action = twin.random.choice(actions)
            trail.append(action.__name__)
            try:
                action()
                twin.check_reads()
            except Exception as error:
                raise AssertionError(f"seed {seed}, step {step} {trail[-8:]}: {error!r}") from error
