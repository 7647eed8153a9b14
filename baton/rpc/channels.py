"""grpc.aio channels to other processes."""

import grpc

MAX_MESSAGE_BYTES = 16 * 1024 * 1024

OPTIONS: list[tuple[str, int]] = [
    # A peer that vanished silently is noticed within 10 + 5 s, also on an idle stream.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A process that is available again is reached within a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A new channel starts with its first delay instead of sharing another channel's backoff.
    ("grpc.use_local_subchannel_pool", 1),
]


def open_channel(address: str) -> grpc.aio.Channel:
    """Return a channel to `host:port`, or to any target that gRPC understands. The caller closes
    it.

    Opening does no I/O. Every call on it needs a deadline, and `call.cancel()` in a `finally`: a
    call that is merely dropped continues.
    """
    return grpc.aio.insecure_channel(address, options=OPTIONS)
