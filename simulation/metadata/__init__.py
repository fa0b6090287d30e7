"""The real controller in the simulated world, judged by the answers that clients and brokers get.

Theory of operation. Every node of `simulation/consensus`'s world runs a QuorumController (`simulated_controller.py`) on its
simulated log, with its machine's clock and virtual timers. Notices of commits and of leadership arrive in order but late, like
those of the driver's apply task. Simulated brokers (`simulated_broker.py`) and clients (`kraftlab chaos`, by `admin_network.py`)
send requests to any controller that believes to be active, also to a deposed leader that does not know it yet. The world
(`world.py`) judges every answer when it is given. Beside the nodes, the committed log is replayed from scratch
(`replayed_log.py`), record by record, and the invariants of the metadata are checked at every step.

The rules are M1 to M14 in `simulation/rules.py`. M1 also compares, at intervals, the index with that of the image, and a snapshot
and the log after it with the image.

Not simulated: the brokers' data, sockets, and gRPC. Plant a bug from `mutants.py` to see a rule break.
"""
