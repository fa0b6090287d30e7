"""Exhaustive crashes of the broker's log-dir mover (W9): a real run is recorded file operation by file operation, every state
that a crash could leave on the disks is made, and the real recovery runs on each."""
