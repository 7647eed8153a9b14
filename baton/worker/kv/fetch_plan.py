"""Decide which blocks of an admitted sequence are worth fetching. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from baton.engine.base import SequenceRequest
from baton.engine.events import Admitted
from baton.internal.v1 import kvstore_pb2, worker_pb2


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """Blocks that one sequence fetches before it starts."""

    keys: Sequence[bytes]
    """Consecutive blocks, from the first one that the engine does not have."""
    sources: Sequence[kvstore_pb2.KvSource]
    """Peer stores that may hold the blocks now or later."""
    wait_seconds: float
    """Seconds to wait for blocks that no store holds yet; 0: do not wait."""
    first_block: int | None = None
    """Index of the first one; None: the first that the engine does not have."""
    group: int = 0
    """Group of the layout."""


def plan_fetch(
    start: worker_pb2.Start,
    request: SequenceRequest,
    admitted: Admitted,
    block_tokens: int,
    wait_seconds: float,
) -> FetchPlan:
    """Return the fetch plan of a Start's sequence, given the blocks that the engine has.

    A last, partial block is fetched only for a stream that prepares: other streams compute it
    anyway. Streams wait up to `wait_seconds` for the prompt's KV, unless the frontend reports that
    prefill is done.
    """
    if request.prompt_logprobs is not None:  # which only a forward pass yields
        return FetchPlan((), (), 0.0)
    prompt = len(request.prompt)
    blocks = (prompt + len(request.output)) // block_tokens
    wait = 0.0
    match start.WhichOneof("work"):
        case "prepare":
            sources = start.prepare.sources
            wait, blocks = wait_seconds, len(admitted.keys)
        case "prefill":
            sources = start.prefill.sources
        case _:
            sources = start.generate.sources
            if start.generate.wait_for_kv:
                # No store will receive blocks of the output: wait only for the prompt's.
                wait, blocks = wait_seconds, prompt // block_tokens
    return FetchPlan(admitted.keys[admitted.cached_tokens // block_tokens : blocks], sources, wait)
