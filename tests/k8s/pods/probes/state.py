"""What the results of probes mean: thresholds, as kubelet counts them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Timing:
    """When a probe runs, in seconds, and how many results in a row count."""

    initial_delay: float = 0.0
    period: float = 10.0
    timeout: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3

    @classmethod
    def of(cls, probe: Mapping[str, Any]) -> "Timing":
        """Return a probe's timing, with Kubernetes' defaults.

        Raises:
            ValueError: a value is out of its range.
        """
        timing = cls(
            probe.get("initialDelaySeconds", 0),
            probe.get("periodSeconds", 10),
            probe.get("timeoutSeconds", 1),
            probe.get("successThreshold", 1),
            probe.get("failureThreshold", 3),
        )
        if min(timing.period, timing.timeout) < 1:
            raise ValueError("periodSeconds and timeoutSeconds are at least 1")
        if min(timing.success_threshold, timing.failure_threshold) < 1:
            raise ValueError("successThreshold and failureThreshold are at least 1")
        return timing


class ProbeState:
    """Whether a probe holds, after as many equal results in a row as its thresholds say.

    Args:
        timing: of the probe.
        holds: before any result.
    """

    def __init__(self, timing: Timing, *, holds: bool) -> None:
        self._timing = timing
        self.holds = holds
        self._last: bool | None = None
        self._in_a_row = 0

    def record(self, success: bool) -> bool:
        """Take a result, and return whether it decided: enough of its kind came in a row."""
        self._in_a_row = self._in_a_row + 1 if success is self._last else 1
        self._last = success
        timing = self._timing
        threshold = timing.success_threshold if success else timing.failure_threshold
        if self._in_a_row < threshold:
            return False
        self.holds = success
        return True
