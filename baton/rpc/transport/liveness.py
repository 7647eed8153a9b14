"""How soon the processes of a cluster notice that one of them is gone: what channels go by."""

from contextvars import ContextVar

from baton.settings import LivenessSettings
from baton.telemetry.scope import of_process

_DEFAULT = LivenessSettings()
_current: ContextVar[LivenessSettings] = of_process(ContextVar("baton_liveness", default=_DEFAULT))

current = _current.get
"""Return the settings of the process that this task belongs to."""


def use(settings: LivenessSettings) -> None:
    """Go by these in this task and in all that is started from it."""
    _current.set(settings)
