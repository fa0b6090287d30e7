"""A model of Raft, small and separate from the code under test. They share only the formats of batches and messages.

Theory of operation. The model has replicas (replica.py), each an immutable value: role, epoch, leader and vote, the log, its
durable part, the stored election state, and the high watermark. An *action* makes the next value out of one. It has a guard, and
refuses a step that Raft does not allow (actions.py). Beside the replicas there are facts that no single node knows (ghosts.py):
every batch ever written, as a tree; the leader of each epoch; the committed log; and the state of the sender of every message.

Refinement (refinement.py) runs in lock step with the simulation. Each step of a real node must be a sequence of actions of the
model, maybe an empty one: first the event that the node received, then its effects in their order. After every step the replica
of the model and the real node must agree, variable by variable. So a run is judged by Raft's rules, and not only by its outcome:
a majority that was counted wrongly is refused at the count, even if it does no harm later.

The model leaves out time (a replica can stand at any moment), the transport of messages (a sent message can arrive at any time,
any number of times), snapshots as files (a log that is cleaned, or replaced by a snapshot, is still the whole log here), and
reads (S16 judges them).
"""

from .refinement import Refinement

__all__ = ["Refinement"]
