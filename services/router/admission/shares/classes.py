"""The operator's policy for each priority class. Plain values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClassAdmission:
    """How requests of one priority class are admitted. Times are in seconds."""

    floor: float = 0.0
    """Share of placed work that the class receives while it waits, whatever else waits."""
    ceiling: float = 1.0
    """Share of the workers' prompt tokens that the class may use, even while no other class
    waits."""
    max_running: int = 0
    """Most requests placed and not ended; 0: unlimited."""
    weight: float = 1.0
    """Divides what a request costs its tenant."""
    deadline: float = math.inf
    """Seconds from arrival, for requests without one: a later first token is useless."""
    ttft_target: float = math.inf
    """Time to first token, for requests without one: a request that would miss it is rejected."""
    itl_target: float = 0.0
    """Seconds between tokens of running streams, kept when prompts are placed with them, where
    there is a choice; 0: as in the placement policy. Streams keep the one that they were placed
    with."""
    waits: bool = False
    """Whether requests that would be late wait all the same, instead of being rejected."""
    max_wait: float = math.inf
    """Most seconds that a request waits; never more than the queue's own bound."""

    def __post_init__(self) -> None:
        """Reject invalid values."""
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
    """The classes by number, as requests name them; one that is not listed has no limits."""

    classes: Mapping[int, ClassAdmission] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject floors that cannot all be kept."""
        floors = math.fsum(one.floor for one in self.classes.values())
        if floors > 1:
            raise ValueError(f"the floors of all classes add up to {floors:g}: at most 1")

    def of(self, priority_class: int) -> ClassAdmission:
        """Return the policy of a class."""
        return self.classes.get(priority_class, DEFAULT_CLASS)

    @property
    def ttft_target(self) -> float:
        """The strictest target of all classes for the first token; infinite: none has one."""
        return min((one.ttft_target for one in self.classes.values()), default=math.inf)

    def targets(self, priority_class: int, own: float) -> tuple[float, float]:
        """Return a request's targets, in seconds: to the first token, and between tokens; 0: none.

        Deadlines are no targets: they are far longer.

        Args:
            priority_class: its class.
            own: its own target of the first token; infinite: its class's applies.
        """
        policy = self.of(priority_class)
        first = own if own < math.inf else policy.ttft_target
        return first if first < math.inf else 0.0, policy.itl_target

    def itl_target(self, priority_class: int) -> float | None:
        """Return the target of a class's streams; 0: it has none; None: no class has one.

        If None, their streams need not be counted.
        """
        if any(one.itl_target for one in self.classes.values()):
            return self.of(priority_class).itl_target
        return None


DEFAULT_ADMISSION = AdmissionPolicy()
