"""What an operator decides about each priority class. Plain values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClassAdmission:
    """How requests of one priority class are admitted. Times are in seconds."""

    floor: float = 0.0
    """Share of what is placed that the class is given while it waits, whatever goes before it."""
    ceiling: float = 1.0
    """Share of the prompt tokens that workers can compute which the class may have, also while
    nobody else waits."""
    max_running: int = 0
    """Requests that may be placed and not ended; 0: any number."""
    weight: float = 1.0
    """What a request costs its tenant is divided by it."""
    deadline: float = math.inf
    """From arrival, for requests that name none: a first token later than that is worth nothing."""
    ttft_target: float = math.inf
    """Time to first token, for requests that name none: one that cannot be kept is not begun."""
    itl_target: float = 0.0
    """Between tokens of running streams, which prompts beside them keep where there is a choice; 0:
    as the placement policy says. Streams keep the one that they were placed with."""
    waits: bool = False
    """Whether requests that would come too late wait all the same, and are not refused at once."""
    max_wait: float = math.inf
    """A request that has waited for so long is given up; never later than the queue's own bound."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        for name, low, high in (
            ("floor", 0.0, 1.0),
            ("ceiling", 0.0, 1.0),
            ("max_running", 0, math.inf),
            ("itl_target", 0.0, math.inf),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} {value} is out of range: {low:g} to {high:g}")
        for name in ("ceiling", "weight", "deadline", "ttft_target", "max_wait"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} {getattr(self, name)} is out of range: above 0")
        if self.floor > self.ceiling:
            raise ValueError(f"floor {self.floor} exceeds ceiling {self.ceiling}")


DEFAULT_CLASS = ClassAdmission()


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """The classes by number, as requests name them; one that is not named has no limits."""

    classes: Mapping[int, ClassAdmission] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse floors that cannot all be kept."""
        floors = math.fsum(one.floor for one in self.classes.values())
        if floors > 1:
            raise ValueError(f"the floors of all classes add up to {floors:g}: at most 1")

    def of(self, priority_class: int) -> ClassAdmission:
        """Return what holds for a class."""
        return self.classes.get(priority_class, DEFAULT_CLASS)

    def itl_target(self, priority_class: int) -> float | None:
        """Return what streams of a class are to keep, 0: it says nothing; None: no class says any.

        Where none does, their streams need not be counted.
        """
        if any(one.itl_target for one in self.classes.values()):
            return self.of(priority_class).itl_target
        return None


DEFAULT_ADMISSION = AdmissionPolicy()
