"""Another rule of recovery, which only experiments set, has the last word on what was found."""

import pytest

from kraftlab.quorum.storage import LogCorrupt
from kraftlab.quorum.storage.identity import partition_directory

DIRECTORY = partition_directory("/data")


@pytest.fixture
def damaged(disk, open_store, builder):
    """A disk with four batches, of which the second has rotted and the fourth says that the first two were committed."""
    written = builder.log(4, stamp_behind=1)
    log = open_store(disk, segment_bytes=100_000).log
    builder.append(log, written)
    log.flush()
    [segment] = [name for name in disk.names(DIRECTORY) if name.endswith(".log")]
    disk.flip(f"{DIRECTORY}/{segment}", 4096 + len(written[0].data) + 30, 0)
    return disk


def test_without_another_rule_committed_data_is_repaired(damaged, open_store) -> None:
    assert open_store(damaged, segment_bytes=100_000).boot.repair_until == 4


def test_a_rule_can_take_damage_for_a_torn_tail(damaged, open_store) -> None:
    store = open_store(damaged, segment_bytes=100_000, rule=lambda found: found._replace(repair_until=0))
    assert (store.log.end_offset, store.boot.repair_until) == (1, 0)


def test_a_rule_can_refuse_the_disk_which_stays_as_it_is(damaged, open_store) -> None:
    def refuse(found):
        raise LogCorrupt(found.walk.reason)

    before = damaged.snapshot()
    with pytest.raises(LogCorrupt):
        open_store(damaged, rule=refuse)
    assert damaged.snapshot() == before
