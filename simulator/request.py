"""One simulated request, and its placement."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True)
class Request:
    """A request, and its outcome."""

    number: int
    arrival: float
    prompt_tokens: int
    output_tokens: int
    chain: tuple[int, ...]
    """Blocks of its prompt."""
    tenant: str = ""
    worker: int = -1
    """Worker that computed its prompt; -1: it was rejected, or never placed."""
    cached_blocks: int = 0
    ttft: float = float("inf")


class WorkerChoice(NamedTuple):
    """The placement of a request."""

    worker: int
    """Worker that computes the prompt."""
    brought: int = 0
    """Leading blocks that it must have: missing ones are transferred from other workers."""
    decode: int | None = None
    """Worker that runs the stream; None: the same worker; with pools, the one with the least KV."""
    key: tuple[float, float] | None = None
    """Sort key of requests that wait at the worker, lowest first: the lead of the request's tenant,
    and its own key; None: the cluster's order."""
