"""Events: their types, ids and bodies."""

import msgspec

from baton.conversations.ids import draw_block, text_of

EVENT = "evt"
EVENT_TYPES = (
    *("batch.completed", "batch.failed", "batch.expired", "batch.cancelled"),
    *("response.completed", "response.failed", "response.incomplete", "response.cancelled"),
)
"""All types, as openai-python names them."""
_SAMPLES = {"batch": "batch_test", "response": "resp_test"}


class WebhookEvent(msgspec.Struct, frozen=True):
    """An event as its receivers get it. Its id stays the same over all attempts."""

    id: str
    type: str
    created_at: int
    """Seconds since the Unix epoch."""
    data: dict[str, str]
    """`id` of what the event is about."""
    object: str = "event"


def make_event(kind: str, subject: str, now: float) -> WebhookEvent:
    """Return a new event.

    Args:
        kind: one of EVENT_TYPES.
        subject: id of what it is about.
        now: seconds since the Unix epoch.
    """
    ident = draw_block(int(now * 1000))
    return WebhookEvent(text_of(EVENT, ident), kind, int(now), {"id": subject})


def sample_event(kind: str, now: float) -> WebhookEvent:
    """Return an event about nothing, for a test of an endpoint."""
    return make_event(kind, _SAMPLES[kind.partition(".")[0]], now)
