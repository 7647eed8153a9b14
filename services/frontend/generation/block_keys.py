"""The keys of a prompt's KV blocks, as sent to the router."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from baton.internal.v1 import cluster_pb2, router_pb2
from baton.kv.keys import PlaceholderRun, chain_root, full_block_keys, pack, token_bytes

_root = lru_cache(maxsize=256)(chain_root)
"""Equal for all requests of a model, adapter and tenant."""


def block_key_chains(
    prompt: Sequence[int],
    cards: Iterable[cluster_pb2.ModelCard],
    adapter_digest: bytes,
    salt: bytes,
    runs: Sequence[PlaceholderRun] = (),
) -> list[router_pb2.Chain]:
    """Return a chain of full-block keys per live layout of a model.

    Args:
        prompt: the prompt's tokens.
        cards: the model's live cards, one per layout.
        adapter_digest: the digest of the adapter in use; empty if there is none.
        salt: the tenant's secret.
        runs: the prompt's placeholder tokens, in order.
    """
    made = []
    data = token_bytes(prompt)
    for card in cards:
        layout_id, block_tokens = card.layout_id, card.block_tokens
        root = _root(card.name, card.weights_digest, layout_id, adapter_digest, salt)
        keys = pack(full_block_keys(root, data, block_tokens, runs))
        made.append(router_pb2.Chain(layout_id=layout_id, keys=keys, block_tokens=block_tokens))
    return made
