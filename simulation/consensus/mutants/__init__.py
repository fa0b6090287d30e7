"""Deliberate bugs of consensus and storage, to see that the simulator finds them.

The bugs are the field's classics: a vote that a crash forgets, an acknowledgement ahead of the disk, a record of an older epoch
committed by counting, a tail that is not cut. To add one, write its row into the module of its mechanism; `kraftlab mutants`
and the tests find it there.
"""

from __future__ import annotations

from kraftlab.checking.mutant import Table

from . import elections, membership, reads, replication, snapshots, storage
from .seeds import Seeds

MUTANTS: Table[Seeds] = Table(
    elections.MUTANTS | replication.MUTANTS | reads.MUTANTS | storage.MUTANTS | membership.MUTANTS | snapshots.MUTANTS
)
