"""The table of faults."""

from __future__ import annotations

from . import cluster_faults, disk_faults, link_faults, process_faults
from .kind import Kind, Rhythm

SELDOM = Rhythm(pause=(0.4, 2.0), duration=(0.3, 1.0))
"""For faults that take a cluster a while to recover from."""

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "kill",
            "nodes are killed (kill -9) and started again",
            process_faults.draw_for_processes,
            process_faults.kill,
        ),
        Kind("pause", "nodes are paused (SIGSTOP)", process_faults.draw_for_processes, process_faults.pause),
        Kind(
            "partition",
            "the cluster is split: halves, one node, a ring of majorities, a bridge",
            link_faults.draw_partition,
            link_faults.partition,
            breaks_links=True,
        ),
        Kind(
            "isolate-leader",
            "the leader or the next leader loses every link",
            link_faults.draw_isolated,
            link_faults.isolate,
            breaks_links=True,
        ),
        Kind(
            "one-way",
            "nodes send but do not receive, or the other way round",
            link_faults.draw_one_way,
            link_faults.one_way,
            breaks_links=True,
        ),
        Kind(
            "late",
            "messages of one link are held and delivered after elections",
            link_faults.draw_late,
            link_faults.late,
            breaks_links=True,
            rhythm=Rhythm(duration=(0.5, 2.0)),
        ),
        Kind(
            "slow",
            "messages are delayed, by a fixed or a random time",
            link_faults.draw_slow,
            link_faults.shaped,
            breaks_links=True,
        ),
        Kind("loss", "messages are lost", link_faults.draw_loss, link_faults.shaped, breaks_links=True),
        Kind("duplicate", "messages arrive twice", link_faults.draw_duplicate, link_faults.shaped, breaks_links=True),
        Kind("reorder", "messages overtake each other", link_faults.draw_reorder, link_faults.shaped, breaks_links=True),
        Kind(
            "clock",
            "clocks of nodes run slow or fast, or step forward",
            process_faults.drawing(process_faults.OF_PROCESSES),
            process_faults.clock,
        ),
        Kind(
            "power-loss",
            "nodes are killed and lose all data that was not synced",
            disk_faults.draw_power_loss,
            disk_faults.power_loss,
            needs=("power",),
            rhythm=SELDOM,
        ),
        Kind(
            "disk-full",
            "every write of a node fails, as on a full disk",
            disk_faults.draw_one,
            disk_faults.disk_full,
            needs=("prlimit",),
            rhythm=SELDOM,
            ends_nodes=True,
        ),
        Kind(
            "disk-error",
            "fsyncs fail (EIO); nodes must end",
            disk_faults.draw_one,
            disk_faults.disk_error,
            needs=("strace",),
            rhythm=SELDOM,
            ends_nodes=True,
        ),
        Kind(
            "slow-disk",
            "fsyncs take long",
            disk_faults.draw_slow_disk,
            disk_faults.slow_disk,
            needs=("strace",),
        ),
        Kind(
            "bit-rot",
            "committed bytes of a metadata log are corrupted while its node is down",
            disk_faults.draw_controller,
            disk_faults.bit_rot,
            needs=("files",),
            rhythm=SELDOM,
        ),
        Kind(
            "torn",
            "nodes die in the middle of a write to their metadata log",
            disk_faults.draw_controller,
            disk_faults.torn,
            needs=("files",),
        ),
        Kind(
            "membership",
            "a voter leaves the quorum and joins again, some with an empty disk",
            cluster_faults.draw_membership,
            cluster_faults.membership,
            rhythm=SELDOM,
        ),
        Kind(
            "move-dirs",
            "brokers move replicas between their log directories",
            cluster_faults.draw_move_dirs,
            cluster_faults.move_dirs,
        ),
    )
}
"""By name, in the order of help and doctor."""
ALL = "all"
