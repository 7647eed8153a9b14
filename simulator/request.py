"""One request of a simulation, and where it was sent."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True)
class Request:
    """A request, and how it went."""

    number: int
    arrival: float
    prompt_tokens: int
    output_tokens: int
    chain: tuple[int, ...]
    """Blocks of its prompt."""
    tenant: str = ""
    worker: int = -1
    """That computed its prompt; -1: it was refused, or never placed."""
    cached_blocks: int = 0
    ttft: float = float("inf")


class WorkerChoice(NamedTuple):
    """Where a request goes."""

    worker: int
    """That computes the prompt."""
    brought: int = 0
    """Leading blocks that it is to have: those that it lacks are brought from other workers."""
    decode: int | None = None
    """That runs the stream; None: the worker itself; with pools the one with the least KV."""
    key: tuple[float, float] | None = None
    """By which the worker orders what waits there, the lowest first: the lead of the request's
    tenant, and its own key; None: the cluster's order."""
