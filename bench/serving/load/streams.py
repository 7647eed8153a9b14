"""A load of streamed completions, and its results at the clients."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.harness.stats import percentile

MAX_INTERVALS = 200_000
NextRequest = Callable[[], int | None]
"""Returns the number of the next request; None: there are no more."""


@dataclass(frozen=True)
class Load:
    """The requests, their rate and concurrency."""

    model: str
    prompts: Sequence[str]
    http: str = ""
    """`host:port`, or empty."""
    grpc: str = ""
    """`host:port`, if not over HTTP."""
    responses: bool = False
    """Over HTTP, `/v1/responses` instead of chat completions; nothing is stored."""
    output_tokens: int = 16
    concurrency: int = 16
    requests: int = 1000
    together: bool = False
    """All clients send at the same moment, and again once the last of them has its response; then
    `requests` is a multiple of `concurrency`."""
    quick_ack: bool = False
    """Over HTTP, acknowledge every segment immediately, so that a server that waits for it is not
    slower."""
    ramp_seconds: float = 0.0
    """The first requests are spread over this time."""
    timeout_seconds: float = 120.0
    seed: int = 1

    @property
    def surface(self) -> str:
        """The API that it calls."""
        return "grpc" if self.grpc else "responses" if self.responses else "http"


@dataclass
class Observed:
    """Results at the clients. Times are in seconds."""

    first: list[float] = field(default_factory=list)
    """Seconds from sending a request to its first event."""
    whole: list[float] = field(default_factory=list)
    """Seconds to the last event."""
    intervals: list[float] = field(default_factory=list)
    """Seconds between two reads of one stream that returned events: the first `MAX_INTERVALS`."""
    events: int = 0
    open: int = 0
    """Streams that have had an event and have not ended."""
    most_open: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    sample: str = ""
    """The first error's message."""
    began: float = 0.0
    ended: float = 0.0
    cpu: float = 0.0

    def stream_began(self) -> None:
        """Count a stream's first event."""
        self.open += 1
        self.most_open = max(self.most_open, self.open)

    def interval(self, seconds: float) -> None:
        """Record the time between two reads."""
        if len(self.intervals) < MAX_INTERVALS:
            self.intervals.append(seconds)


def report(load: Load, seen: Observed) -> dict[str, Any]:
    """Return the results, fit for JSON; times to first token and between tokens in ms."""
    seconds = max(1e-9, seen.ended - seen.began)
    done = len(seen.first)
    return {
        "surface": load.surface,
        "concurrency": load.concurrency,
        "output_tokens": load.output_tokens,
        "ok": done,
        "errors": dict(seen.errors),
        "error_sample": seen.sample,
        "seconds": seconds,
        "requests_per_second": done / seconds,
        "tokens_per_second": done * load.output_tokens / seconds,
        "events_per_request": seen.events / max(1, done),
        "ttft_ms": _percentiles(seen.first),
        "itl_ms": _percentiles(seen.intervals),
        "whole_ms": _percentiles(seen.whole),
        "most_open": seen.most_open,
        "client_cpu_seconds": seen.cpu,
    }


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    return {f"p{percent}": percentile(seconds, percent) * 1e3 for percent in (50, 99)}
