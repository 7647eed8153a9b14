"""The endpoint picker's metrics."""

from baton.telemetry.metrics import Counter, Gauge, Histogram

PICKS = Counter(
    "baton_picker_picks_total",
    "Requests by outcome: picked, no_frontend, full (the routers' queues are), or shed (the "
    "request would have to wait, and its objective is sheddable).",
    ["outcome"],
)
PICK_SECONDS = Histogram(
    "baton_picker_pick_seconds",
    "Time to pick once a request's head, and the body if it is needed, have arrived.",
    buckets=(2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 1e-1),
)
STREAMS = Gauge("baton_picker_streams", "Requests that a gateway is processing with this picker.")
HELD_BYTES = Gauge(
    "baton_picker_held_bytes", "Size of the bodies that are held until their end has arrived."
)
UNREAD_BODIES = Counter(
    "baton_picker_unread_bodies_total",
    "Requests picked for without their model, because their body exceeded picking.max_body_bytes, "
    "or all held bodies together picking.max_held_bytes.",
)
