"""How soon the processes of a cluster notice that one is gone: the settings that channels use."""

from contextvars import ContextVar

from baton.settings import LivenessSettings
from baton.telemetry.scope import of_process

_DEFAULT = LivenessSettings()
_current: ContextVar[LivenessSettings] = of_process(ContextVar("baton_liveness", default=_DEFAULT))

current = _current.get
"""Return the settings of the process that this task belongs to."""


def use(settings: LivenessSettings) -> None:
    """Use these settings in this task and in all tasks started from it."""
    _current.set(settings)
