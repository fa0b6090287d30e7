"""The specification with planted bugs: each mutation applies, is a bug of the core, and breaks a property in a small model."""

from __future__ import annotations

import pytest

from kraftlab.quorum.spec import mutations, tlc
from kraftlab.simulation.consensus.mutants import MUTANTS


@pytest.mark.parametrize("name", mutations.MUTATIONS)
def test_a_mutation_changes_the_specification_and_is_planted_in_the_core_too(name: str) -> None:
    assert mutations.mutated(name) != (tlc.MODULES / "Kraftlab.tla").read_text()
    assert name in MUTANTS


def test_a_harmless_mutation_is_one_of_the_mutations() -> None:
    assert mutations.HARMLESS.keys() <= mutations.MUTATIONS.keys()


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in mutations.MUTATIONS if name not in mutations.HARMLESS])
def test_a_mutated_specification_breaks_a_property(name: str) -> None:
    try:
        tlc.jar()
    except tlc.TlcMissing as error:
        pytest.skip(str(error))
    assert mutations.check(name, timeout_s=600).violated
