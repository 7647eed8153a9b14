"""The names of a prompt's KV blocks, as the router is told them."""

from collections.abc import Iterable, Sequence

from baton.internal.v1 import cluster_pb2, router_pb2
from baton.kv.keys import chain_root, pack, prompt_keys


def block_key_chains(
    prompt: Sequence[int],
    cards: Iterable[cluster_pb2.ModelCard],
    adapter_digest: bytes,
    salt: bytes,
) -> list[router_pb2.Chain]:
    """One chain of full-block keys per live layout of a model.

    Args:
        prompt: the prompt's tokens.
        cards: the model's live cards, one per layout.
        adapter_digest: of the adapter that computes them; empty: the model itself.
        salt: the tenant's secret.
    """
    made = []
    for card in cards:
        root = chain_root(card.name, card.weights_digest, card.layout_id, adapter_digest, salt)
        keys = prompt_keys(root, prompt, card.block_tokens)
        made.append(
            router_pb2.Chain(
                layout_id=card.layout_id, keys=pack(keys.full), block_tokens=card.block_tokens
            )
        )
    return made
