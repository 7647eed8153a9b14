"""Derived traces: spread times, a hot prefix, tenants. Pure; randomness comes from a seed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from simulator.traces.trace import Trace

TICK_SECONDS = 3.0
"""Resolution of the timestamps in the conversation trace."""
HOT_TOKENS = 20_000


def spread(trace: Trace, seed: int, tick: float = TICK_SECONDS) -> Trace:
    """Spread the requests of each instant evenly at random over the `tick` that it stands for.

    Within an instant they stay in order; if instants are not ticks, the requests are sorted again.
    """
    draw = np.random.default_rng(seed)
    offsets = draw.random(len(trace)) * tick
    times = trace.times + offsets[np.lexsort((offsets, trace.times))]
    order = np.argsort(times, kind="stable").tolist()
    return replace(
        trace,
        times=times[order],
        prompt_tokens=[trace.prompt_tokens[one] for one in order],
        output_tokens=[trace.output_tokens[one] for one in order],
        chains=[trace.chains[one] for one in order],
        tenants=[trace.tenants[one] for one in order],
    )


def hot_prefix(trace: Trace, tokens: int = HOT_TOKENS, every: int = 2) -> Trace:
    """Add one prefix of `tokens` tokens, in whole blocks, to every `every`-th request."""
    blocks = tokens // trace.block_tokens
    prefix = tuple(range(trace.blocks, trace.blocks + blocks))
    more = blocks * trace.block_tokens
    return replace(
        trace,
        chains=[
            chain if number % every else prefix + chain for number, chain in enumerate(trace.chains)
        ],
        prompt_tokens=[
            length if number % every else length + more
            for number, length in enumerate(trace.prompt_tokens)
        ],
        blocks=trace.blocks + blocks,
    )


def split_tenants(
    trace: Trace, count: int, seed: int, shares: Sequence[float] | None = None
) -> Trace:
    """Assign each conversation to one of `count` tenants, which share no KV with each other.

    Requests whose second block is the same are one conversation: the first is often a system prompt
    that all have.

    Args:
        trace: what is split.
        count: of tenants.
        seed: draws them.
        shares: of each tenant, as numbers to each other; None: all the same.
    """
    draw = np.random.default_rng(seed)
    if shares is None:
        owner = draw.integers(count, size=trace.blocks + 1)
    else:
        owner = draw.choice(count, size=trace.blocks + 1, p=np.array(shares) / sum(shares))
    numbers: dict[tuple[int, int], int] = {}
    chains, tenants = [], []
    for chain in trace.chains:
        tenant = int(owner[chain[min(1, len(chain) - 1)] if chain else -1])
        tenants.append(f"tenant-{tenant}")
        chains.append(tuple(numbers.setdefault((tenant, one), len(numbers)) for one in chain))
    return replace(trace, chains=chains, tenants=tenants, blocks=len(numbers))
