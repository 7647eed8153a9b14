"""What the parts that vLLM makes itself need of the engine that they belong to, by its id.

vLLM is given the names of a connector and of a logits processor and makes both: the scheduler's
side of the connector in the engine's process, the others wherever a rank runs. Within one process
they find each other here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from baton.engine.sampling.draw import Sampled


class Admission(Protocol):
    """What the scheduler's side of the connector asks and tells; implemented by `HeldSequences`."""

    def match(self, name: str, local_tokens: int) -> tuple[int | None, bool]: ...
    def allocated(self, name: str, pages: list[int], *, loading: bool) -> None: ...
    def scheduled(
        self,
        tokens: Mapping[str, int],
        pages_of: Callable[[str], list[int]],
        preempted: Iterable[str],
    ) -> None: ...


ADMISSIONS: dict[str, Admission] = {}
"""By engine id, from before its EngineCore is made until it is closed."""

WORKER_ADDRESS = "worker_address"
"""Name in the connector's configuration under which ranks of other processes find the worker."""


@dataclass(frozen=True, slots=True)
class RegisteredKv:
    """What a rank of this process keeps its KV in."""

    caches: dict[str, Any]
    """Tensors by layer."""
    backend: str
    isa: str


REGISTERED: dict[str, RegisteredKv] = {}
"""By engine id, once vLLM has allocated its pages."""

DRAWN: dict[str, dict[int, tuple["Sampled", ...]]] = {}
"""What Baton's sampler drew besides the token that vLLM sees, by request and output position."""
