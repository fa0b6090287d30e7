"""The real controller in the simulated world, judged by the answers that administrators and brokers get.

Theory of operation. Every node of `simulation/consensus`'s world runs a QuorumController (`simulated_controller.py`) on its
simulated log, with its machine's clock and virtual timers. Notices of commits and of leadership arrive in order but late, like
those of the driver's apply task. Simulated administrators and brokers (`workload.py`, `simulated_broker.py`) send requests to any
controller that believes to be active, also to a deposed leader that does not know it yet. The world (`world.py`) judges every
answer when it is given. Beside the nodes, the committed log is replayed from scratch (`replayed_log.py`), record by record, and
the invariants of the metadata are checked at every step.

The rules, by the names with which violations begin:

- M1: committed records can be replayed, keep the invariants of the metadata, and change partition and leader epochs as they say.
At intervals, the index equals the index of the image, and a snapshot with the log after it equals the image.
- M2: a node's committed image equals the image replayed from scratch up to the same offset, and in the end its index as well.
- M3: no answer rests on uncommitted state, neither a success nor a refusal.
- M4: acknowledged records are in the committed log, at the acknowledged place.
- M5: a controller that is not active holds no uncommitted state.
- M6: if an answer says that nothing was changed, nothing was appended.
- M7: in the end each request to a process that still lives has its answer, one controller is active, and the configs that were
  acknowledged last are there, or newer ones.
- M8: no manager meets an unexpected error, and no controller finds that it must stop.
- M9: readers see all of a transaction or nothing.
- M10: a request with an id is applied at most once, and all its answers are the same (`named_requests.py`).
- M11: in the end no queued move waits for which there is a slot.
- M12: only the registered incarnation of a leader changes its in-sync set, and only with the current epochs of the partition.
- M13: no broker is fenced within a session after a heartbeat, unless its port refuses (`sessions.py`).
- M14: no leader fences a registration because of its port twice.

Not simulated: the brokers' data, sockets, and gRPC. Plant a bug from `mutants.py` to see a rule break.
"""
