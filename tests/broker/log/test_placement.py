"""New replicas go where most bytes are free, and of directories on one volume where fewest replicas are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftlab.broker.log.placement import ASKED_EVERY_S, Candidate, FreeBytes, rank


class Directory:
    def __init__(self, volume: int, free: dict[int, int]) -> None:
        self.volume = volume
        self.free = free

    @property
    def usable_bytes(self) -> int:
        return self.free[self.volume]


FREE = st.dictionaries(st.integers(0, 3), st.integers(-1, 60), min_size=4, max_size=4)
DIRECTORIES = st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 5)), min_size=1, max_size=6)
SIZES = st.lists(st.integers(1, 12), max_size=30)


@given(FREE, DIRECTORIES, SIZES)
def test_each_replica_goes_where_a_naive_placement_puts_it(
    free: dict[int, int], layout: list[tuple[int, bool, int]], sizes: list[int]
) -> None:
    directories = [Directory(volume, free) for volume, _, _ in layout]
    replicas = [count for _, _, count in layout]
    known = FreeBytes(lambda: 0.0)
    left = dict(free)
    for size in sizes:
        ranks = [
            rank(Candidate(cordoned, bytes_free, count))
            for (_, cordoned, _), bytes_free, count in zip(layout, known.of(directories), replicas, strict=True)
        ]
        chosen = ranks.index(min(ranks))
        allowed = [at for at, (_, cordoned, _) in enumerate(layout) if not cordoned] or list(range(len(layout)))
        roomiest = max(left[layout[at][0]] for at in allowed)
        best = [at for at in allowed if left[layout[at][0]] == roomiest]
        assert chosen == min(best, key=lambda at: replicas[at])
        known.charge(directories[chosen], size)
        replicas[chosen] += 1
        left[layout[chosen][0]] -= size


@given(st.integers(1, 5), st.integers(0, 40), st.integers(0, 10))
def test_directories_of_one_volume_get_as_many_replicas_each(count: int, replicas: int, size: int) -> None:
    known, directories, placed = FreeBytes(lambda: 0.0), [Directory(0, {0: 100})] * count, [0] * count
    for _ in range(replicas):
        ranks = [rank(Candidate(False, free, number)) for free, number in zip(known.of(directories), placed, strict=True)]
        placed[ranks.index(min(ranks))] += 1
        known.charge(directories[0], size)
    assert max(placed) - min(placed) <= 1


def test_what_was_placed_counts_until_the_file_system_is_asked_again() -> None:
    now, free = [0.0], {0: 50}
    directory = Directory(0, free)
    known = FreeBytes(lambda: now[0])
    assert known.of([directory]) == [50]
    known.charge(directory, 20)
    free[0] = 45
    assert known.of([directory, directory]) == [30, 30]
    now[0] = ASKED_EVERY_S
    assert known.of([directory]) == [45]
