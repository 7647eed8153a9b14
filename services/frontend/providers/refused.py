"""What an upstream's failure means: for its client, for retries and for the breaker. Pure.

Nothing of an upstream's body reaches a client or a log, as it may repeat the prompt or the key:
only its status, and codes of a short list.
"""

from typing import Any

import msgspec

from baton.errors import BatonError, Reason

MAX_RETRY_AFTER_SECONDS = 3600.0
_CONTEXT = frozenset(("context_length_exceeded", "string_above_max_length"))
_KEY_STATUSES = (401, 402, 403)
_OVERLOADED = (429, 529)
_RETRYABLE = (408, 409, 425)


class UpstreamFailure(Exception):  # noqa: N818 - what it is called everywhere else
    """An attempt failed.

    Args:
        what: completes "provider NAME …".
        reason: for the client.
        retry: whether another attempt may succeed.
        counts: whether the breaker counts it.
        wait: seconds for which the upstream wants no request; None: it does not say.
        of_key: whether another key may be accepted.
    """

    def __init__(
        self,
        what: str,
        reason: Reason = Reason.UNAVAILABLE,
        *,
        retry: bool = True,
        counts: bool = True,
        wait: float | None = None,
        of_key: bool = False,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.reason = reason
        self.retry = retry
        self.counts = counts
        self.wait = wait
        self.of_key = of_key

    def error(self, provider: str) -> BatonError:
        """Return the client's error."""
        return BatonError(self.reason, f"provider {provider} {self.what}", retry_after=self.wait)


def status_failure(status: int, retry_after: str | None, body: bytes) -> UpstreamFailure:
    """Return the failure of a response that is not 200.

    Args:
        status: of HTTP.
        retry_after: the header; None: there is none.
        body: the beginning of the body.
    """
    wait, code = _seconds(retry_after), _code(body)
    if status in _KEY_STATUSES:
        return UpstreamFailure(
            f"does not accept this cluster's key (status {status}): tell the operator",
            wait=wait,
            of_key=True,
        )
    if status in _OVERLOADED:
        return UpstreamFailure(
            f"has too many requests (status {status}); retry later",
            Reason.OVERLOADED,
            counts=False,
            wait=1.0 if wait is None else wait,
        )
    if status in _RETRYABLE or status >= 500:
        return UpstreamFailure(f"failed (status {status})", wait=wait)
    if 300 <= status < 400:
        return UpstreamFailure(
            f"answered with a redirect (status {status}), which is not followed", retry=False
        )
    if 200 <= status < 300:
        return UpstreamFailure(f"sent no stream (status {status})")
    if code in _CONTEXT or _too_long(body):
        return UpstreamFailure(
            "rejected the request: it exceeds the model's context",
            Reason.CONTEXT_LENGTH_EXCEEDED,
            retry=False,
            counts=False,
        )
    if status == 404:
        return UpstreamFailure(
            "does not know the model or the path (status 404): tell the operator",
            retry=False,
            counts=False,
        )
    return UpstreamFailure(
        f"rejected the request (status {status})",
        Reason.INVALID_FIELD,
        retry=False,
        counts=False,
    )


def stream_failure(error: bytes) -> UpstreamFailure:
    """Return the failure that an event of a stream reports."""
    code = _code(b'{"error":' + error + b"}")
    if code in ("rate_limit_exceeded", "rate_limit_error", "overloaded_error"):
        what = "has too many requests; retry later"
        return UpstreamFailure(what, Reason.OVERLOADED, counts=False, wait=1.0)
    return UpstreamFailure("failed within its stream")


def _too_long(body: bytes) -> bool:
    """Return whether an error says that the prompt is too long: Anthropic's have no code for it."""
    return b'"prompt is too long' in body or b"exceed context limit" in body


def _seconds(text: str | None) -> float | None:
    """Return the seconds of `retry-after`; None: there is none, or it is a date or nonsense."""
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return min(seconds, MAX_RETRY_AFTER_SECONDS) if seconds >= 0 else None


def _code(body: bytes) -> str:
    """Return the code of an error, or its type; empty: it has none."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    error = found.get("error") if isinstance(found, dict) else None
    if not isinstance(error, dict):
        return ""
    for name in ("code", "type"):
        if isinstance(error.get(name), str):
            return str(error[name])
    return ""
