"""Two bugs of the mover at once: each of two guards of the protocol may be the one that stops the other's bug.

Theory of operation. Most pairs show as soon as one of the two bugs shows alone. Of pairs whose bugs are both masked, a few mask
each other: planted together they show. In a few other pairs, one bug keeps the situation from coming up in which the other one
shows. Two tables list these pairs. `hunt_pair` judges the images of every script, first those in which the bugs are looked for
alone, until an image breaks a rule. A pair that does not show has been looked for in all images.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from kraftlab.checking.mutant import Finding
from kraftlab.checking.workers import done_by

from .mutants import BUGS, bugs_of, hunt
from .protocol import SCRIPTS

SHOW_TOGETHER = {"M1-swap+M1-ends", "X1-align+X3-cut"}
"""Bugs that do no harm alone: each masks the other."""
HIDE_EACH_OTHER = {"M5+X1-level", "M5+X3-align", "M1-ends+X3-align"}
"""Pairs whose first bug keeps the second from showing: the move ends before the leader changes, or does not wait at ends that
differ.
"""


def pairs(ids: Iterable[str] = ()) -> tuple[str, ...]:
    """Return all pairs of bugs, as names of mutants; with `ids` (M1, X2, …) only those of two bugs of these mutations."""
    wanted = set(ids)
    bugs = [name for name in BUGS if not wanted or name.partition("-")[0] in wanted]
    return tuple("+".join(pair) for pair in itertools.combinations(bugs, 2))


def shows(pair: str) -> bool:
    """Return True if at least one crash image must detect this pair of bugs."""
    is_masked = all(bug.limits.masked_by for bug in bugs_of(pair))
    return pair in SHOW_TOGETHER or not (is_masked or pair in HIDE_EACH_OTHER)


def hunt_pair(pair: str) -> Finding[str]:
    """Look for a pair in all images, the likely ones first. MutantDoesNotApply."""
    bugs = sorted(bugs_of(pair), key=lambda bug: bool(bug.limits.masked_by))
    scripts = dict.fromkeys((*(script for bug in bugs for script in bug.limits.scripts), *SCRIPTS))
    return hunt(pair, tuple(scripts))


def hunt_pairs(names: Iterable[str], jobs: int = 1) -> Iterator[Finding[str]]:
    """Hunt each pair, in this process or in several; findings come in the order of the names."""
    return done_by(jobs, hunt_pair, names)
