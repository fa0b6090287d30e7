"""Arithmetic of replication throttles: throttled replicas, and grants of bytes (KIP-73, KIP-113). Pure: time is an argument.

Theory of operation. A `ByteBudget` is an account in bytes that earns `rate` per second and is charged for every byte copied. A
grant needs at least a quantum (50 ms worth) on the account, so a copy begins with an empty account: by time t after its beginning
at most rate × t bytes have been granted, however small the replica is. A batch cannot be split: one that is larger than the grant
is still taken whole, the account goes into debt, and the next grant waits until the debt is paid. So over any copy the bytes stay
within rate × time plus one batch, and the average holds where Kafka's windows let the first fetch take a mebibyte for free.

Waiting claimants share by weight (the number of replicas that each asks for): the one with the fewest bytes per replica comes
first (start-time fair queueing), and gets at most its share of the earnings, so none starves. A claimant that works with a grant
does not wait: its turn comes once it has settled, or asks again, so that a leader that does not answer delays no other claimant.
While a claimant waits, up to half a second of earnings is kept, so that a late wake-up does not slow the copy down; after a
quarter of a second without claimants nothing is kept.

Not handled here: traffic that must never wait. Replicas in sync make no claims.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

QUANTUM_S = 0.05
"""A grant is at least the earnings of this time: fewer, larger reads."""
CREDIT_S = 0.5
"""Unused earnings are kept up to those of this time, while a claimant waits."""
IDLE_S = 0.25
"""After this time without a claimant, earnings are dropped; debts are not."""
METER_WINDOW_S = 3.0
REMEMBERED_MAX = 1000


class ByteBudget:
    """One rate, shared by all claimants. `rate` in bytes per second; None: unlimited; 0: no grants.

    A claimant `enter`s under a key of its own, calls `take` at or after `ready_at` until it gets a grant, does its work, calls
    `settle` with the bytes that it really used, and `leave`s. Calls for one budget carry times that never go back.
    """

    def __init__(self, rate: float | None, now_s: float) -> None:
        self.rate = rate
        self._waiting: dict[Hashable, int] = {}
        self._served: dict[Hashable, float] = {}
        self._at_work: set[Hashable] = set()
        self._turn = 0.0
        self._balance = 0.0
        self._updated_s = now_s
        self._last_active_s = float("-inf")

    def set_rate(self, rate: float | None, now_s: float) -> None:
        """Change the rate. Earnings at the old one are dropped, and so is a debt when the limit is lifted."""
        self._earn(now_s)
        self._balance = 0.0 if rate is None else min(self._balance, 0.0)
        self.rate = rate

    def enter(self, key: Hashable, weight: int, now_s: float) -> None:
        """Wait for bytes under `key`, for `weight` (> 0) replicas. A key that was here a moment ago keeps its place."""
        self._earn(now_s)
        if not self._waiting and now_s - self._last_active_s > IDLE_S:
            self._balance = min(self._balance, 0.0)
            self._served.clear()
        if len(self._served) > REMEMBERED_MAX:
            self._served = {known: at for known, at in self._served.items() if at > self._turn or known in self._waiting}
        self._waiting[key] = weight
        self._served[key] = max(self._served.get(key, 0.0), self._turn)

    def is_waiting(self, key: Hashable) -> bool:
        return key in self._waiting

    def leave(self, key: Hashable, now_s: float) -> None:
        self._earn(now_s)
        del self._waiting[key]
        self._at_work.discard(key)
        self._last_active_s = now_s

    def ready_at(self, now_s: float) -> float:
        """The earliest time at which `take` may grant bytes."""
        self._earn(now_s)
        if self.rate is None:
            return now_s
        if not self.rate:
            return float("inf")
        return now_s + max(0.0, self._quantum() - self._balance) / self.rate

    def take(self, key: Hashable, wanted_bytes: int, now_s: float) -> int:
        """Return the bytes granted, charged at once, at most `wanted_bytes`; 0: not yet, or another claimant's turn."""
        self._earn(now_s)
        if self.rate is None:
            return wanted_bytes
        quantum = self._quantum()
        self._at_work.discard(key)
        if not self.rate or self._balance < quantum * (1 - 1e-6) or key != self._next():
            return 0
        weight = self._waiting[key]
        share = max(self._balance * weight / sum(self._waiting.values()), quantum)
        granted = max(1, min(wanted_bytes, int(share)))
        self._balance -= granted
        self._turn = max(self._turn, self._served[key])
        self._served[key] += granted / weight
        self._at_work.add(key)
        return granted

    def _next(self) -> Hashable:
        """The claimant whose turn it is: of the waiting ones, the one with the fewest bytes."""
        return min((key for key in self._waiting if key not in self._at_work), key=self._served.__getitem__)

    def settle(self, key: Hashable, granted_bytes: int, used_bytes: int, now_s: float) -> None:
        """Correct a grant by the bytes that were really used: fewer are given back, more become debt."""
        self._earn(now_s)
        self._last_active_s = now_s
        self._at_work.discard(key)
        if self.rate is not None:
            self._balance = min(self._balance + granted_bytes - used_bytes, self.rate * CREDIT_S)
            if key in self._waiting:
                served = self._served[key] + (used_bytes - granted_bytes) / self._waiting[key]
                self._served[key] = max(served, self._turn)

    def _quantum(self) -> float:
        assert self.rate is not None
        return max(1.0, self.rate * QUANTUM_S)

    def _earn(self, now_s: float) -> None:
        if self.rate is not None:
            earned = self._balance + self.rate * (now_s - self._updated_s)
            self._balance = min(earned, max(self.rate * CREDIT_S, self._quantum()))
        self._updated_s = now_s


class RateMeter:
    """Bytes per second over the last few seconds, for people. Keeps at most one sample per tenth of a second."""

    def __init__(self, now_s: float) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._started_s = now_s

    def record(self, size_bytes: int, now_s: float) -> None:
        slot_s = round(now_s, 1)
        if self._samples and self._samples[-1][0] == slot_s:
            self._samples[-1] = (slot_s, self._samples[-1][1] + size_bytes)
        else:
            self._samples.append((slot_s, size_bytes))
        self._forget(now_s)

    def bytes_per_second(self, now_s: float) -> float:
        """Return the rate. For any thread."""
        span_s = min(METER_WINDOW_S, max(now_s - self._started_s, 0.1))
        return sum(size for at_s, size in self._samples.copy() if at_s >= now_s - METER_WINDOW_S) / span_s

    def _forget(self, now_s: float) -> None:
        while self._samples and self._samples[0][0] < now_s - METER_WINDOW_S:
            self._samples.popleft()
