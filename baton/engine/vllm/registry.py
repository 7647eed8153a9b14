"""Entries by engine id, for components that vLLM itself creates.

vLLM is given the names of a connector and of a logits processor and creates both: the scheduler's
side of the connector in the engine's process, the others wherever a rank runs. Within one process
they find each other here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from baton.engine.sampling.draw import Sampled
    from baton.engine.vllm.pages import KvPages


class Admission(Protocol):
    """Calls from the scheduler's side of the connector; implemented by `HeldSequences`."""

    def match(self, name: str, local_tokens: int) -> tuple[int | None, bool]: ...
    def allocated(self, name: str, *, loading: bool) -> None: ...
    def scheduled(self, tokens: Mapping[str, int], preempted: Iterable[str]) -> None: ...


ADMISSIONS: dict[str, Admission] = {}
"""By engine id, from before its EngineCore is created until it is closed."""

WORKER_ADDRESS = "worker_address"
"""Key in the connector's configuration under which ranks in other processes find the worker."""


@dataclass(frozen=True, slots=True)
class RegisteredKv:
    """KV memory of a rank in this process."""

    pages: "KvPages"
    backend: str
    isa: str


REGISTERED: dict[str, RegisteredKv] = {}
"""By engine id, once vLLM has allocated its pages."""

DRAWN: dict[str, dict[int, tuple["Sampled", ...]]] = {}
"""Tokens that Baton sampled besides the one that vLLM sees, by request and output position."""
