"""KV of all layers: those that see equally many tokens share a group's pages."""

from collections.abc import Sequence

from baton.engine.torch.attention import AttentionStep
from baton.engine.torch.kv.pages import PagedKv, Query
from baton.kv.layout import GroupKind, KvGroup


def group_windows(windows: Sequence[int]) -> tuple[int, ...]:
    """Return the window of each group, that of full attention first.

    Args:
        windows: last tokens that each layer sees, 0: all.
    """
    return tuple(sorted(set(windows)))


def layout_groups(windows: Sequence[int], layer_bytes: int) -> tuple[KvGroup, ...]:
    """Return the groups of a layout; none if all layers see all tokens.

    Args:
        windows: as of `group_windows`.
        layer_bytes: bytes of a block in one layer.
    """
    if not any(windows):
        return ()
    return tuple(
        KvGroup(
            GroupKind.WINDOW if window else GroupKind.FULL,
            windows.count(window) * layer_bytes,
            window,
        )
        for window in group_windows(windows)
    )


class ModelKv:
    """The pools of all groups. Owned by a runner, on its thread.

    Args:
        pools: in the order of the layout's groups, with as many pages each.
        windows: of the model's layers, as of `group_windows`; empty: all see all tokens.
    """

    def __init__(self, pools: Sequence[PagedKv], windows: Sequence[int] = ()) -> None:
        self.pools = tuple(pools)
        first = self.pools[0]
        self.kernels = first.kernels
        self.device = first.pool.device
        self.block_tokens = first.block_tokens
        self.scratch_page = first.scratch_page
        numbers = {pool.window: number for number, pool in enumerate(self.pools)}
        self.places = tuple(
            (numbers[window], windows[:layer].count(window)) for layer, window in enumerate(windows)
        ) or tuple((0, layer) for layer in range(first.layers))
        """Of each layer, its group and its number among the group's layers."""

    def plan(
        self, queries: Sequence[Sequence[Query]]
    ) -> tuple[list[list[int]], tuple[AttentionStep, ...]]:
        """Order a batch and lay it out in each group.

        Args:
            queries: of each group, one per sequence: they differ in their pages.

        Returns:
            The sequences that attend together, by index, whose tokens come in this order; and a
            step per group.
        """
        order = self.pools[0].group(queries[0])
        steps = [
            pool.plan([[own[i] for i in together] for together in order])
            for pool, own in zip(self.pools, queries, strict=True)
        ]
        return order, tuple(steps)
