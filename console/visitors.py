"""Visitors of the console: which requests it takes, who they are, and what they may do.

Theory of operation. The console asks the cluster as its own user and shows the answers, so a visitor needs the right that those
calls need: DESCRIBE on the cluster. On a cluster with users, a visitor logs in as one of them; changes are then asked for as that
user, and the cluster decides. Without users everybody who reaches the address may do everything, as with the command line.

A page of another site must not reach the console through a visitor's browser. A request needs a Host that names this machine (an
address, or a name that the console was told): a foreign name that resolves to this machine gets nothing. A request that changes
something needs `Sec-Fetch-Site: same-origin`, or an Origin of the console's own scheme and Host, and always the header
`x-kraftlab`, which no form can send.
"""

from __future__ import annotations

import ipaddress
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from urllib.parse import urlsplit

import msgspec

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import AdminClient, ClusterUnreachable
from kraftlab.client.security import ClientSecurity
from kraftlab.common.audit import AuditLog
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.metadata.acls import Operation

SESSION_S = 8 * 3600
SESSIONS_MAX = 200
CHECK_S = 60.0
"""Age after which the rights of a visitor are asked for again."""
COOKIE = "kraftlab-session"
SILENT_S = 5.0
"""Time for which a cluster that has not answered is not asked for rights again."""
CALL_MS = 2000
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refusal(Exception):
    """A request that the console does not take: a status of HTTP, and the reason with the next step."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def check_host(host: str, names: Collection[str]) -> None:
    """Refuse a request that was sent to a name which is not ours."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        ipaddress.ip_address(name)
    except ValueError:
        name = host.rpartition(":")[0] or host
        if name.lower() not in {"localhost", *names}:
            raise Refusal(
                403, f"this console is not called {name!r}; start it with --host-name {name or 'NAME'} if it is"
            ) from None


def check_write(headers: Mapping[str, str], scheme: str) -> None:
    """Refuse a change that a page of another site asks for. `scheme`: that of the request, http behind most proxies: a browser
    that sends no Sec-Fetch-Site is refused there if the proxy speaks https.
    """
    site, ours = headers.get("sec-fetch-site"), f"{scheme}://{headers.get('host', '')}"
    if not (site == "same-origin" or (site is None and headers.get("origin") == ours)) or "x-kraftlab" not in headers:
        raise Refusal(
            403, f"a change must come from a page of this console, or with the headers Origin: {ours} and x-kraftlab: 1"
        )
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refusal(415, "a change is JSON; send content-type: application/json")


class Visitor:
    """Somebody with a client of their own. `user` is "" on a cluster without users."""

    def __init__(self, user: str, client: AdminClient) -> None:
        self.user = user
        self.client = client
        self.operations: frozenset[int] = frozenset()
        self.since = time.monotonic()
        self._checked_at = float("-inf")

    def may(self, operation: Operation) -> bool:
        """Return whether the visitor has a right on the cluster."""
        return operation in self.operations

    def check(self, *, now: bool = False) -> None:
        """Ask for the visitor's rights on the cluster, if the last answer is old, or `now`. Blocks. Refusal without DESCRIBE."""
        if time.monotonic() - self._checked_at < CHECK_S and not now:
            return
        if self.client.speaks_kafka:  # a broker of Apache Kafka decides on each call by itself
            self.client.describe_cluster(timeout_ms=CALL_MS)
            self.operations, self._checked_at = frozenset(Operation), time.monotonic()
            return
        request = pb.DescribeClusterRequest(include_cluster_authorized_operations=True)
        bits = self.client.call(pb.DescribeClusterResponse, request, timeout_ms=CALL_MS).cluster_authorized_operations
        self.operations = frozenset(each for each in Operation if bits >= 0 and bits >> each & 1)
        if not self.may(Operation.DESCRIBE):
            raise Refusal(
                403,
                f"user {self.user} has no right to DESCRIBE the cluster, which every page shows; "
                f"kraftlab acls --add --allow-principal User:{self.user} --operation describe --cluster gives it",
            )
        self._checked_at = time.monotonic()


class Visitors:
    """Sessions of one console, in memory. `security` is the console's own; if it has a user, visitors must log in."""

    def __init__(self, client: AdminClient, connect: Callable[[ClientSecurity], AdminClient], audit: AuditLog) -> None:
        security = client.security
        self.must_log_in = security.user is not None or security.has_sasl
        self._security = security
        self._connect = connect
        self._audit = audit
        self._everybody = Visitor("", client)
        self._everybody.operations = frozenset(Operation)
        self._sessions: dict[str, Visitor] = {}
        self._silent_at = float("-inf")
        self._lock = threading.Lock()

    def log_in(self, user: str, password: str, host: str) -> str:
        """Return the cookie of a new session. Blocks. Refusal, ApiError."""
        changes: dict[str, object] = {"user": user, "password": password, "token": "", "token_file": ""}
        if self._security.mechanism == "OAUTHBEARER":
            changes["mechanism"] = "PLAIN"
        client = self._connect(msgspec.structs.replace(self._security, **changes))
        visitor = Visitor(user, client)
        try:
            visitor.check()
        except BaseException as error:
            client.close()
            if isinstance(error, ApiError) and error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                self._audit.login_failed("CONSOLE", host, "wrong user or password")
                raise Refusal(401, "the cluster does not know this user with this password; check both") from None
            raise
        key = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._sessions) >= SESSIONS_MAX:
                self._sessions.pop(next(iter(self._sessions))).client.close()
            self._sessions[key] = visitor
        return key

    def log_out(self, key: str) -> None:
        with self._lock:
            visitor = self._sessions.pop(key, None)
        if visitor is not None:
            visitor.client.close()

    def of(self, key: str, *, now: bool = False) -> Visitor:
        """Return the visitor of a cookie, with rights that are not old, or of `now`. A cluster that does not answer leaves the
        last ones, so that it can be healed. Blocks. Refusal without a session, ApiError.
        """
        if not self.must_log_in:
            visitor = self._everybody
        else:
            with self._lock:
                found = self._sessions.get(key)
            if found is None or time.monotonic() - found.since > SESSION_S:
                self.log_out(key)
                raise Refusal(401, "log in as a user of the cluster")
            visitor = found
        if time.monotonic() - self._silent_at > SILENT_S:
            try:
                visitor.check(now=now and self.must_log_in)
            except ClusterUnreachable:  # the pages show that, to those who could log in before
                self._silent_at = time.monotonic()
        return visitor

    def knows(self, key: str) -> bool:
        """Return whether a session goes on; always True where nobody logs in."""
        return not self.must_log_in or key in self._sessions

    def close(self) -> None:
        for key in [*self._sessions]:
            self.log_out(key)
