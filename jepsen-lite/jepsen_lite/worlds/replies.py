"""What a client is given of a node's answer, in any world."""

from __future__ import annotations

from typing import Any

from kraftlab.metadata.errors import ErrorCode

from ..outcomes import error_name, of_error_code
from ..workload import CallFailed, Reply


def reply_of(response: Any, node: int) -> Reply:
    """A node's answer. CallFailed if its header says that the whole request failed."""
    header = response.header
    code = header.error_code
    if code == ErrorCode.NONE:
        return Reply(response, node, header.metadata_offset, header.epoch)
    outcome = of_error_code(code, outcome_unknown=header.outcome_unknown)
    raise CallFailed(outcome, error_name(code), node=node, offset=header.metadata_offset, epoch=header.epoch)
