"""The policies by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from simulator.config import ClusterConfig
from simulator.policies.base import Baseline
from simulator.policies.baseline import BaselineRouter
from simulator.policies.baton import BatonRouter
from simulator.policies.baton_queue import BatonQueueRouter
from simulator.policies.least_wait import LeastWait
from simulator.policies.longest_prefix import LongestPrefix
from simulator.policies.peers.dynamo import Dynamo
from simulator.policies.peers.llmd import LlmD
from simulator.policies.peers.mooncake import Mooncake
from simulator.policies.peers.preble import Preble
from simulator.policies.round_robin import RoundRobin
from simulator.router import Actions, Router

MakeRouter = Callable[[ClusterConfig, Sequence[bytes], int, int, Actions], Router]
"""Creates a router from a cluster, the keys of all blocks, the tokens of a block, a seed, and the
actions available to it."""


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy that can be simulated."""

    name: str
    title: str
    """Display name."""
    make: MakeRouter
    shared_cache: bool = False
    """Whether workers share one unbounded cache: a theoretical bound, not a real cluster."""
    elastic: bool = False
    """Whether its workers may come and go."""


def _baseline(
    name: str, title: str, policy: Callable[[], Baseline], *, shared_cache: bool = False
) -> PolicyEntry:
    def make(
        config: ClusterConfig,
        keys: Sequence[bytes],
        block_tokens: int,
        seed: int,
        actions: Actions,  # noqa: ARG001  # as MakeRouter has it
    ) -> BaselineRouter:
        return BaselineRouter(policy(), config, keys, block_tokens, seed, shared_cache=shared_cache)

    return PolicyEntry(name, title, make, shared_cache)


_ENTRIES = (
    PolicyEntry("baton", "Baton without its queue", BatonRouter, elastic=True),
    PolicyEntry("baton-queue", "Baton", BatonQueueRouter, elastic=True),
    _baseline("round-robin", "round robin", RoundRobin),
    _baseline("least-wait", "least wait", LeastWait),
    _baseline("longest-prefix", "longest prefix", LongestPrefix),
    _baseline("dynamo", "Dynamo, full cost", partial(Dynamo, full=True)),
    _baseline("dynamo-prefill", "Dynamo, prefill cost", partial(Dynamo, full=False)),
    _baseline("mooncake", "Mooncake, algorithm 1", Mooncake),
    _baseline("llm-d", "llm-d, scorers 3:2:2", LlmD),
    _baseline("preble", "Preble", Preble),
    _baseline("fifo-infinite", "FIFO, one infinite cache", LeastWait, shared_cache=True),
)
POLICIES = {entry.name: entry for entry in _ENTRIES}
