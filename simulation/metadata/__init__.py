"""The real controller in the simulated world: what consensus promises, seen from what people and brokers were told.

Theory of operation. Every node of `simulation/consensus`'s world runs a QuorumController (`simulated_controller.py`) on its
simulated log, with its machine's clock and virtual timers; notices of commits and of leadership reach it in order, but late, as
those of the driver's apply task do. Administrators and brokers that exist as far as their requests go (`workload.py`) ask
whoever believes to be active: also a deposed leader that does not know it yet. The world (`world.py`) judges every answer when
it is given, and the committed log (`replayed_log.py`) is replayed from scratch beside the nodes, record by record, with the
metadata's invariants checked at every step.

The rules, by the names that violations begin with:

- M1: what is committed can be replayed, keeps the invariants of metadata, and moves partition and leader epochs as it says; now
  and then, the index is the one that the image has, and a snapshot with the log behind it is the image.
- M2: a node's committed image equals the one replayed from scratch up to the same offset, and its index too in the end.
- M3: nobody is told anything that rests on uncommitted state, neither success nor refusal.
- M4: what was acknowledged stands in the committed log, at the place that was told.
- M5: a controller that is not active holds no uncommitted state.
- M6: what is told to have changed nothing was not appended.
- M7: in the end each question to a process that still lives has its answer, one controller is active, and the configs that were
  acknowledged last are there, or newer ones.
- M8: no manager meets an error it did not expect, and no controller finds that it must stop.
- M9: of a transaction, readers see everything or nothing.
- M10: a request with an id is applied at most once, and every answer to it is the same (`named_requests.py`).
- M11: in the end no queued move waits for which there is a slot.
- M12: an in-sync set is only changed by the registered incarnation of its leader, and as the partition is now.
- M13: nobody is fenced that was heard within its session (`sessions.py`).

Not simulated: the brokers' data, sockets, and gRPC. Plant a bug from `mutants.py` to see a rule break.
"""
