"""Choose the prefix from which a sequence continues, by what the store holds."""

from collections.abc import Sequence
from dataclasses import dataclass

from baton.internal.v1 import kvstore_pb2
from baton.kv.client.client import KvStoreClient
from baton.kv.cuts import CutRules


@dataclass(frozen=True, slots=True)
class CutChoice:
    """A cut, and where others may want one."""

    cut_tokens: int
    branch_tokens: int = 0
    """End of the prefix that others computed and that no cut reaches: sequences branch off there.
    0: there is none.
    """


async def choose_cut(
    store: KvStoreClient,
    layout_id: bytes,
    rules: CutRules,
    keys: Sequence[bytes],
    limit: int,
    sources: Sequence[kvstore_pb2.KvSource] = (),
) -> CutChoice:
    """Return the longest cut whose objects the store, or one of the sources, holds now.

    Args:
        store: the worker's own.
        layout_id: of the objects.
        rules: of the layout.
        keys: of the full blocks of the sequence's context.
        limit: most tokens of the cut.
        sources: stores of other hosts that may hold objects.

    Raises:
        StoreUnavailableError: the store cannot be reached.
        BatonError: the store rejected the request.
    """
    held: dict[int, Sequence[bool]] = {}
    prefix = len(keys)
    for group in range(len(rules.groups)):  # those of full attention come first, and bound others
        held[group] = await store.lookup(keys[:prefix], layout_id, group, sources) if prefix else []
        if rules.is_full(group):
            prefix = next((i for i, found in enumerate(held[group]) if not found), prefix)

    def has(group: int, block: int) -> bool:
        return block < prefix and held[group][block]

    cut = rules.longest(has, limit)
    shared = prefix * rules.block_tokens if rules.is_full(0) else 0
    return CutChoice(cut, shared if shared > cut else 0)
