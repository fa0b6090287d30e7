"""A second opinion: Raft as this project means it, written once more, small, and apart from the code under test, with which it
shares the formats of batches and messages alone.

Theory of operation. The model knows replicas (replica.py), each an immutable value: its role, epoch, leader and vote, the log as
it sees it, what of that is on its disk, what is stored of the election, and its high watermark. An *action* makes the next value
out of one, and has a guard: it refuses unless Raft allows the step (actions.py). Beside the replicas there is what only an
onlooker can know (ghosts.py): every batch ever written, as a tree; who has ever led an epoch; what is committed; and of every
message that left a node, what its sender was at that moment.

Refinement (refinement.py) runs in lock step with the simulation. Each step of a real node must be none or more actions of the
model, in the order of its effects: what the node has heard first, then what it did about it. After every step the model's
replica and the real one must agree, variable by variable. So a run is judged by what Raft allows, not only by what is broken in
the end: a majority that was counted wrongly is refused at the count, even if nothing ever comes of it.

What the model leaves out: time (anybody may stand at any moment), how messages travel (any message that was sent may arrive, as
often and as late as it likes), snapshots as files (a log that is cleaned, or replaced by a snapshot, is still the whole log
here), and reads (S16 judges those).
"""

from .refinement import Refinement

__all__ = ["Refinement"]
