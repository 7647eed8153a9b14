"""Where a request ran, what it waited for, and what its router had predicted."""

import msgspec

MAX_REASON = 256
"""Most characters of a placement's reason that are kept."""


class RequestPath(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True, gc=False):
    """The path of one request. In JSON, unknown and inapplicable fields are omitted.

    Times are seconds. A field that is about one worker is about the latest one: with the first
    token, the one that produced it.
    """

    priority_class: str = ""
    """`premium`, `interactive` or `batch`."""
    provider: str = ""
    """The provider that it ran at; empty: workers of the cluster, and the rest is about them."""
    router: str = ""
    """The router that placed it; empty: none did, and a placement was random."""
    prefill_worker: str = ""
    """The worker that computed the prompt; the decode worker, if that did."""
    decode_worker: str = ""
    kv_store: str = ""
    """The store from which cached KV was to come, or through which KV was handed over."""
    cache_tier: str = ""
    """Slowest tier in which its router found cached KV of the prompt: `engine` (the worker's own
    pages), `store` (its store's memory) or `remote` (another store, or a disk); empty: none."""
    router_queue_seconds: float | None = None
    """In routers' queues."""
    prefill_seconds: float | None = None
    """Computing of the prompt, until the first token."""
    transfer_seconds: float | None = None
    """Waits for KV from stores: before the prompt is computed, and after the first token until the
    decode worker has the KV that was computed elsewhere."""
    decode_seconds: float | None = None
    """The rest, from the first token to the end."""
    moves: int | None = None
    """Placements after the first."""
    predicted_first_token_seconds: float | None = None
    """From its arrival: the time until it was placed, and the prediction of its router then."""
    predicted_queue_seconds: float | None = None
    """At the worker; like the next three a part of the prediction."""
    predicted_transfer_seconds: float | None = None
    predicted_prefill_seconds: float | None = None
    predicted_token_seconds: float | None = None
    """Between two tokens, as the decode worker's other streams had it."""
    target_first_token_seconds: float | None = None
    """From its arrival; its own target, or its class's."""
    target_token_seconds: float | None = None
    """Between two tokens, by its class."""
    placement_reason: str = ""
    """Why it was placed there."""
