"""Changes by visitors: logins, actions and faults. Each change is a line of the audit log.

Every handler checks that the request comes from a page of the console (`Console.body`).
"""

import logging

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response

from kraftlab.common.audit import shown
from kraftlab.lab.cluster_plan import ClusterError
from kraftlab.lab.faults.caller import give
from kraftlab.lab.faults.order_text import command_of
from kraftlab.lab.faults.orders import Order as FaultOrder

from . import actions
from .core import Console, Handler, answered
from .visitors import COOKIE, SESSION_S, Refusal, Visitor, check_write

audit = logging.getLogger("kraftlab.audit")


class Login(msgspec.Struct, forbid_unknown_fields=True):
    user: str
    password: str


async def log_in(console: Console, request: Request) -> Response:
    given = await console.body(request, Login)
    host = request.client.host if request.client else ""
    async with console.logging_in:
        try:
            key = await trio.to_thread.run_sync(console.visitors.log_in, given.user, given.password, host)
        except Refusal:
            await trio.sleep(1)
            raise
    answer = answered(request, {"user": given.user})
    answer.set_cookie(COOKIE, key, max_age=SESSION_S, httponly=True, samesite="strict", secure=console.settings.secure)
    return answer


async def log_out(console: Console, request: Request) -> Response:
    check_write(request.headers, request.url.scheme)
    console.visitors.log_out(request.cookies.get(COOKIE, ""))
    answer = answered(request, {})
    answer.delete_cookie(COOKIE)
    return answer


async def act(console: Console, request: Request) -> Response:
    visitor = await console.visitor(request)
    order = await console.body(request, actions.Order)
    name = request.path_params["name"]
    if not order.preview:
        if console.settings.read_only:
            raise Refusal(403, "this console was started with --read-only; use the command, or start another console without it")
        visitor = await console.visitor(request, now=True)
    outcome = "failed"
    try:
        done = await console.in_thread(lambda: actions.perform(name, order, visitor.client, console.settings.where))
        outcome = "done"
    finally:
        if not order.preview:
            _audit(request, visitor, name, msgspec.json.encode(order.request).decode(), outcome)
    return answered(request, done)


async def fault(console: Console, request: Request) -> Response:
    """Give the cluster an order of `kraftlab cluster`."""
    visitor = await console.visitor(request, now=True)
    order = await console.body(request, FaultOrder)
    data, why, outcome = console.settings.data, console.why_no_faults(visitor), "refused"
    try:
        if why or data is None:
            raise Refusal(403, why)
        outcome = "unknown"  # the cluster may do it although nobody waits
        done = await trio.to_thread.run_sync(give, data, order, limiter=console.breaking, abandon_on_cancel=True)
        outcome = "done"
    except (ClusterError, OSError):
        outcome = "failed"
        raise
    finally:
        _audit(request, visitor, "fault", command_of(order).removeprefix("kraftlab cluster "), outcome)
    return answered(request, done)


def _audit(request: Request, visitor: Visitor, call: str, names: str, outcome: str) -> None:
    host = request.client.host if request.client else ""
    user, names = shown(visitor.user or "anybody"), shown(names)
    fields = {"event": "console", "principal": user, "host": host, "call": call, "names": names, "outcome": outcome}
    audit.info("console: %s from %s, %s %s: %s", user, host, call, names, outcome, extra={"fields": fields})


CHANGES: dict[str, Handler] = {"login": log_in, "logout": log_out, "actions/{name}": act, "faults": fault}
"""Handlers of POST requests, by path below /api/v1. Each finds out itself who asks."""
