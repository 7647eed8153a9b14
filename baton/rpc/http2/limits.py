"""What a peer may cost."""

from collections.abc import Callable
from dataclasses import dataclass

from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.errors import ConnectionFailure


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection. What exceeds a rate ends it with ENHANCE_YOUR_CALM."""

    max_streams: int = 1024
    """Open at once, of those that the peer opens; more are refused, which is safe to retry."""
    stream_window: int = 256 * 1024
    """Bytes that a stream may send before its reader has taken them."""
    connection_window: int = 8 * 1024 * 1024
    """Bytes of all streams that may be on their way."""
    max_frame_bytes: int = 64 * 1024
    """Of a frame's payload."""
    max_header_bytes: int = 64 * 1024
    """Of a header block, decoded and with 32 bytes more per field, as the peer is told ..."""
    max_block_bytes: int = 160 * 1024
    """... and what is read of one all the same, as sent and decoded, so that the stream alone is
    refused: later blocks refer to its fields. More of it ends the connection."""
    max_settings: int = 32
    """Values of a SETTINGS frame."""
    max_continuations: int = 16
    """CONTINUATION frames of a header block."""
    reset_burst: int = 2000
    """Streams that the peer may reset before it has an answer, or make this side reset, at once: at
    least `max_streams`, for it may give up all that it has ..."""
    resets_per_second: float = 200.0
    """... and in the long run: each costs a call that was begun (CVE-2023-44487)."""
    frame_burst: int = 10_000
    """Frames that carry no data which the peer may send at once ..."""
    frames_per_second: float = 1000.0
    """... and in the long run, with those that what it was sent calls for."""
    frames_per_stream: int = 32
    """Of these last, which may come at once for each of `max_streams`: a client that was held up
    for a moment opens the windows of all its streams again, once for every message."""
    unfinished_seconds: float = 30.0
    """For a frame to come whole, and for a header block with all its frames."""
    reply_burst: int = 1000
    """PING and SETTINGS, which call for an answer, at once ..."""
    replies_per_second: float = 100.0
    """... and in the long run, with one for each time that it was sent data."""


DEFAULT_LIMITS = ConnectionLimits()
BULK_LIMITS = ConnectionLimits(
    stream_window=4 * 1024 * 1024,
    connection_window=16 * 1024 * 1024,
    max_frame_bytes=1024 * 1024,
)
"""Of a server whose clients send bulk data: a wake-up for each window and each frame is dear."""


class Budget:
    """A token bucket.

    Args:
        burst: what it holds when it is full, as it is at first.
        per_second: how fast it fills.
        clock: monotonic, in seconds.
        earned: what it may hold beside that of what was put back.
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
        """Take some.

        Args:
            what: is paid for, for people.
            amount: of it.

        Raises:
            ConnectionFailure: ENHANCE_YOUR_CALM, there is not that much.
        """
        if self._left < amount:
            now = self._clock()
            self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
            self._at = now
            if self._left < amount:
                raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, f"too many {what}")
        self._left -= amount

    def earn(self, amount: float) -> None:
        """Put some back."""
        self._left = min(self._most, self._left + amount)


class Budgets:
    """What one peer may still cost, by the rates of its limits."""

    __slots__ = ("frames", "replies", "resets")

    def __init__(self, limits: ConnectionLimits, clock: Callable[[], float]) -> None:
        self.frames = Budget(
            limits.frame_burst,
            limits.frames_per_second,
            clock,
            earned=limits.frames_per_stream * limits.max_streams,
        )
        """Frames without data; data that is sent calls for some."""
        self.replies = Budget(limits.reply_burst, limits.replies_per_second, clock)
        """Frames that call for an answer; likewise."""
        burst = max(limits.reset_burst, limits.max_streams)
        self.resets = Budget(burst, limits.resets_per_second, clock)
        """Streams that end before they were answered."""
