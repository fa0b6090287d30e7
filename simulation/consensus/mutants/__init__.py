"""Deliberate bugs, to see that the simulator finds them. Each replaces one function of the code under test while it is planted.

A checker that has never failed proves nothing; these show that it can. The bugs are the field's classics: a vote that a crash
forgets, an acknowledgement ahead of the disk, a record of an older epoch committed by counting, a tail that is not cut. To add
one, write it in the module of its mechanism and put it into that module's MUTANTS; `kraftlab sim mutants` and the tests find it
there.
"""

from __future__ import annotations

from kraftlab.checking.mutant import Mutant, MutantDoesNotApply, planted

from . import elections, membership, reads, replication, snapshots, storage

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        *elections.MUTANTS,
        *replication.MUTANTS,
        *reads.MUTANTS,
        *storage.MUTANTS,
        *membership.MUTANTS,
        *snapshots.MUTANTS,
    )
}

__all__ = ["MUTANTS", "Mutant", "MutantDoesNotApply", "planted"]
