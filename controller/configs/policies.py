"""Policies of the server: code that may refuse valid changes (KIP-108, KIP-133).

`alter.config.policy.class.name` and `create.topic.policy.class.name` name a Python callable as `module:callable`. It gets the
result of the change, and refuses the change by raising ValueError. The client gets the error's text with POLICY_VIOLATION.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.config.errors import ConfigError

ALTER_CONFIG_POLICY = "alter.config.policy.class.name"
CREATE_TOPIC_POLICY = "create.topic.policy.class.name"


def check_loadable(static: Mapping[str, str]) -> None:
    """ConfigError if a policy of server.properties cannot be loaded. A node checks this at its start."""
    for key in (ALTER_CONFIG_POLICY, CREATE_TOPIC_POLICY):
        if static.get(key):
            _load(key, static[key])


def check_configs(static: Mapping[str, str], resource_type: int, name: str, configs: Mapping[str, str]) -> None:
    """Ask the policy about a resource's new dynamic configs. ApiError POLICY_VIOLATION."""
    _ask(static, ALTER_CONFIG_POLICY, resource_type, name, dict(configs))


def check_topic(
    static: Mapping[str, str], name: str, assignments: Mapping[int, tuple[int, ...]], configs: Mapping[str, str]
) -> None:
    """Ask the policy about a new topic with its replicas by partition. ApiError POLICY_VIOLATION."""
    _ask(static, CREATE_TOPIC_POLICY, name, dict(assignments), dict(configs))


def _ask(static: Mapping[str, str], key: str, *arguments: Any) -> None:
    entry = static.get(key)
    if not entry:
        return
    try:
        _load(key, entry)(*arguments)
    except ValueError as error:
        raise ApiError(ErrorCode.POLICY_VIOLATION, str(error) or f"The policy {entry} refuses it.") from error


@functools.cache
def _load(key: str, entry: str) -> Callable[..., object]:
    module, _, attribute = entry.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise ConfigError(f"{key}={entry}: {type(error).__name__}: {error}; give a Python callable as module:callable") from error
    if not callable(found):
        raise ConfigError(f"{key}={entry}: this is a {type(found).__name__}; give a Python callable as module:callable")
    policy: Callable[..., object] = found
    return policy
