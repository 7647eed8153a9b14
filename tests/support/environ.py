"""Changes of the environment while a library reads it."""

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from services.kvstore.peers.transports.nixl.agent import NixlAgent


def change_only_between_agents(patch: pytest.MonkeyPatch) -> None:
    """Let changes of the environment wait while a NIXL agent is created on another thread.

    UCX walks all variables for those that configure it, and the C library moves them as one is
    added: the process would end by a segmentation fault. Services set no variable; tests do, and
    pytest itself does with each of their phases.
    """
    lock = threading.RLock()

    def alone(call: Callable[..., Any]) -> Callable[..., Any]:
        def locked(*arguments: Any) -> Any:
            with lock:
                return call(*arguments)

        return locked

    patch.setattr(NixlAgent, "__init__", alone(NixlAgent.__init__))
    for name in ("putenv", "unsetenv"):
        patch.setattr(os, name, alone(getattr(os, name)))
