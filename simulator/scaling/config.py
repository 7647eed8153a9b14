"""Configuration of a simulated pool that scales."""

from dataclasses import dataclass, field
from typing import Literal

from services.router.sizing.settings import SizingSettings

ScalerName = Literal["needed", "queue", "fixed"]
SCALERS: tuple[ScalerName, ...] = ("needed", "queue", "fixed")


@dataclass(frozen=True, slots=True)
class ScalingConfig:
    """How a pool scales. Times are in seconds."""

    scaler: ScalerName = "needed"
    """needed: by the router's sizing; queue: by the number of prompts that are not computed; fixed:
    not at all."""
    sizing: SizingSettings = field(default_factory=SizingSettings)
    """Also the bounds of other scalers."""
    itl_target: float = 0.05
    start_seconds: float = 60.0
    """From the decision to start a replica until it takes requests."""
    sync_seconds: float = 15.0
    """Time between two decisions of the scaler."""
    queue_target: float = 4.0
    """For `queue`: prompts that are not computed, per replica."""
    down_window: float = 300.0
    """For `queue`: it goes down only to what was enough for this long."""
    down_seconds: float = 60.0
    """For `queue`: time between two replicas that it stops."""
    failures: tuple[float, ...] = ()
    """When a replica is lost; another one starts at once."""
    blind: tuple[float, float] = (0.0, 0.0)
    """From when to when the scaler has no metrics."""
