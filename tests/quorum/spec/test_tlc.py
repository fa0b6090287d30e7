"""TLC accepts what the core does, and rejects what it does not, at that line. Needs Java and TLC's jar."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.quorum.spec import models, tlc, traces
from kraftlab.simulation.consensus.mutants import MUTANTS
from kraftlab.simulation.consensus.runner import options_for
from kraftlab.simulation.consensus.traced import traced, traced_options

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    try:
        tlc.jar()
    except tlc.TlcMissing as error:
        pytest.skip(str(error))
    return traced(4, 1200)


def test_a_trace_is_accepted(lines) -> None:
    (verdict,) = traces.check([lines])
    assert verdict.accepted and verdict.events == len(lines) and verdict.first_unexplained is None


def test_a_read_that_ends_with_the_leadership_in_its_own_step_is_explained(lines) -> None:
    (verdict,) = traces.check([traced(1032, 1400)])
    assert verdict.accepted, verdict


def _first(lines, event: str, after: int = 0, **more: Any) -> int:
    return next(
        at
        for at, line in enumerate(lines)
        if at >= after and line["event"] == event and all(line[k] == v for k, v in more.items())
    )


def _perturbed(lines) -> list[tuple[int, list[dict[str, Any]]]]:
    """Return traces that no core writes, each with the index of the line that is wrong."""
    changes = {
        _first(lines, "commit", state="leader"): lambda line: {**line, "hw": line["hw"] + 1},
        _first(lines, "stored"): lambda line: {**line, "voted": 3},
        _first(lines, "append", state="follower"): lambda line: {**line, "end": line["end"] + 1},
        _first(lines, "state", state="candidate"): lambda line: {**line, "epoch": line["epoch"] + 1},
        _first(lines, "send", message="FetchRequest", after=300): lambda line: {
            **line,
            "m": {**line["m"], "offset": line["m"]["offset"] + 1},
        },
        _first(lines, "reply", message="FetchResponse", state="leader"): lambda line: {
            **line,
            "m": {**line["m"], "hw": line["m"]["hw"] + 1},
        },
        _first(lines, "durable", after=300): lambda line: {**line, "durable": line["durable"] - 1},
    }
    return [(at, [*lines[:at], change(lines[at]), *lines[at + 1 :]]) for at, change in changes.items()]


def test_a_perturbed_trace_is_rejected_at_the_perturbed_line(lines) -> None:
    wrong = _perturbed(lines)
    for (at, _), verdict in zip(wrong, traces.check([perturbed for _, perturbed in wrong]), strict=True):
        assert not verdict.accepted
        assert verdict.first_unexplained == at + 1, (lines[at], verdict)


def test_the_trace_of_a_planted_bug_is_rejected(lines) -> None:
    bug = MUTANTS["older-fetches-count"]
    (verdict,) = traces.check([traced_options(options_for(bug, 2, None), 400, bug.id)])
    assert not verdict.accepted and verdict.action == "Serve"


def test_a_small_model_has_no_bad_state() -> None:
    run = models.check(models.Model("small", "", epochs=1, batches=1))
    assert run.is_complete and not run.violated and run.distinct > 100
