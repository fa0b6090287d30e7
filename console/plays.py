"""Seeds of the simulator for pages: each is played by a process of its own, since a planted bug changes the code of a process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Mapping

import trio

from .rows import BadQuery

KEPT = 8
SEED_DIGITS_MAX = 18


class Plays:
    """Plays seeds, one at a time, and keeps the newest documents. A seed is always the same."""

    def __init__(self) -> None:
        self._one = trio.CapacityLimiter(1)
        self._kept: OrderedDict[tuple[str, str, str], bytes] = OrderedDict()

    async def document(self, query: Mapping[str, str]) -> bytes:
        """Return the document of a seed with its faults and its planted bug, as JSON. BadQuery."""
        seed, faults, mutant = asked = query.get("seed", "1"), query.get("faults", ""), query.get("mutant", "")
        if not re.fullmatch(rf"[0-9]{{1,{SEED_DIGITS_MAX}}}", seed, re.ASCII):
            raise BadQuery(f"a seed is a number of at most {SEED_DIGITS_MAX} digits")
        if not re.fullmatch(r"[a-z0-9,-]{0,2000}", faults + mutant):
            raise BadQuery("names of faults and bugs have small letters, digits and dashes")
        async with self._one:
            document = self._kept.pop(asked, None) or await _played(*asked)
            self._kept[asked] = document
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return document


async def _played(*asked: str) -> bytes:
    command = [sys.executable, "-m", "kraftlab.console.seeds", *asked]
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode == -signal.SIGALRM:
        raise BadQuery("the seed was not played within a minute; choose another")
    if done.returncode:
        raise BadQuery([*done.stderr.decode(errors="replace").splitlines(), "the simulator failed"][0])
    return bytes(done.stdout)
