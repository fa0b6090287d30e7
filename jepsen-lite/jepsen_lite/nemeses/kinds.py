"""The table of faults."""

from __future__ import annotations

from . import link_faults, process_faults
from .kind import Kind

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "kill",
            "nodes are killed (kill -9) and started again",
            process_faults.draw_for_processes,
            process_faults.kill,
        ),
        Kind("pause", "nodes stand still (SIGSTOP)", process_faults.draw_for_processes, process_faults.pause),
        Kind(
            "partition",
            "the cluster is split: halves, one node, a ring of majorities, a bridge",
            link_faults.draw_partition,
            link_faults.partition,
            needs=("links",),
        ),
        Kind(
            "isolate-leader",
            "the leader loses every link, or who has just been elected",
            link_faults.draw_isolated,
            link_faults.isolate,
            needs=("links",),
        ),
        Kind(
            "one-way",
            "nodes are heard but hear nothing, or the other way round",
            link_faults.draw_one_way,
            link_faults.one_way,
            needs=("links",),
        ),
        Kind(
            "slow",
            "messages are late, by the same time or by different ones",
            link_faults.draw_slow,
            link_faults.shaped,
            ("links",),
        ),
        Kind("loss", "messages are lost", link_faults.draw_loss, link_faults.shaped, ("links",)),
        Kind("duplicate", "messages come twice", link_faults.draw_duplicate, link_faults.shaped, ("links",)),
        Kind("reorder", "messages overtake each other", link_faults.draw_reorder, link_faults.shaped, ("links",)),
    )
}
"""By name, in the order of help and doctor."""
ALL = "all"
