"""Limits on the resources that a peer may use."""

from collections.abc import Callable
from dataclasses import dataclass

from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.errors import ConnectionFailure


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection. Exceeding a rate ends the connection with ENHANCE_YOUR_CALM."""

    max_streams: int = 1024
    """Concurrently open streams that the peer opened; more are rejected, which is safe to retry."""
    stream_window: int = 256 * 1024
    """Bytes that a stream may send before its reader has consumed them."""
    connection_window: int = 8 * 1024 * 1024
    """Bytes in flight on all streams."""
    max_frame_bytes: int = 64 * 1024
    """Largest frame payload."""
    max_header_bytes: int = 64 * 1024
    """Largest header block, decoded and with 32 bytes more per field, as advertised to the peer
    ..."""
    max_block_bytes: int = 160 * 1024
    """... and the most that is still read of a block, both as sent and decoded, so that only the
    stream is rejected: later blocks refer to its fields. A larger block ends the connection."""
    max_settings: int = 32
    """Values in a SETTINGS frame."""
    max_continuations: int = 16
    """CONTINUATION frames in a header block."""
    reset_burst: int = 2000
    """Burst of streams that the peer resets before a response, or makes this side reset: at least
    `max_streams`, because it may cancel all of its streams ..."""
    resets_per_second: float = 200.0
    """... and the sustained rate: each reset wastes a started call (CVE-2023-44487)."""
    frame_burst: int = 10_000
    """Burst of frames without data that the peer may send ..."""
    frames_per_second: float = 1000.0
    """... and the sustained rate, in addition to those that data sent to it causes."""
    frames_per_stream: int = 32
    """Burst of such caused frames for each of `max_streams`: a client that was paused for a moment
    reopens the windows of all its streams, once for every message."""
    unfinished_seconds: float = 30.0
    """Time for a frame to arrive completely, and for a header block with all its frames."""
    reply_burst: int = 1000
    """Burst of PING and SETTINGS frames, which require a reply ..."""
    replies_per_second: float = 100.0
    """... and the sustained rate, with one more for each time that data was sent to the peer."""


DEFAULT_LIMITS = ConnectionLimits()
BULK_LIMITS = ConnectionLimits(
    stream_window=4 * 1024 * 1024,
    connection_window=16 * 1024 * 1024,
    max_frame_bytes=1024 * 1024,
)
"""Limits of a server whose clients send bulk data: a wake-up per window and per frame is
expensive."""


class Budget:
    """A token bucket.

    Args:
        burst: tokens when it is full, as it is initially.
        per_second: rate at which it fills.
        clock: monotonic, in seconds.
        earned: tokens that `earn` may add beyond the burst.
    """

    __slots__ = ("_at", "_burst", "_clock", "_left", "_most", "_per_second")

    def __init__(
        self, burst: float, per_second: float, clock: Callable[[], float], earned: float = 0.0
    ) -> None:
        self._burst = burst
        self._most = burst + earned
        self._per_second = per_second
        self._clock = clock
        self._left = burst
        self._at = clock()

    def spend(self, what: str, amount: float = 1.0) -> None:
        """Take tokens.

        Args:
            what: what is paid for, for the error message.
            amount: number of tokens.

        Raises:
            ConnectionFailure: ENHANCE_YOUR_CALM, there are not enough tokens.
        """
        if self._left < amount:
            now = self._clock()
            self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
            self._at = now
            if self._left < amount:
                raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, f"too many {what}")
        self._left -= amount

    def earn(self, amount: float) -> None:
        """Add tokens."""
        self._left = min(self._most, self._left + amount)


class Budgets:
    """What one peer may still use, by the rates of its limits."""

    __slots__ = ("frames", "replies", "resets")

    def __init__(self, limits: ConnectionLimits, clock: Callable[[], float]) -> None:
        self.frames = Budget(
            limits.frame_burst,
            limits.frames_per_second,
            clock,
            earned=limits.frames_per_stream * limits.max_streams,
        )
        """Frames without data; sending data to the peer earns some."""
        self.replies = Budget(limits.reply_burst, limits.replies_per_second, clock)
        """Frames that require a reply; sending data to the peer earns some."""
        burst = max(limits.reset_burst, limits.max_streams)
        self.resets = Budget(burst, limits.resets_per_second, clock)
        """Streams that ended before they were answered."""
