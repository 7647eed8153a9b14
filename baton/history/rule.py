"""Which ended requests are kept: pure.

Without a target, a first token is slow if it comes more than 2 s later than three times the
predicted transfer and computing of its prompt; queues are not expected. Tokens are slow if all
together came 0.5 s later than the target, or three times what the worker's other streams had.
"""

from baton.history.kept import KeptKind
from baton.usage.record import UsageRecord

FACTOR = 3.0
"""A prediction that is exceeded by less than this is not wrong."""
FIRST_TOKEN_SECONDS = 2.0
DECODE_SECONDS = 0.5
_NO_FAILURE = ("ok", "CANCELLED")
"""Outcomes that the client wanted."""


def kind_of(record: UsageRecord, *, sampled: bool) -> KeptKind | None:
    """Return why a request is kept; None: it is not.

    Args:
        record: the ended request.
        sampled: whether it is in the sample of all requests.
    """
    if record.outcome not in _NO_FAILURE:
        return KeptKind.FAILED
    if is_slow(record):
        return KeptKind.SLOW
    return KeptKind.SAMPLED if sampled else None


def is_slow(record: UsageRecord) -> bool:
    """Return whether a request was slower than its targets, or much slower than expected."""
    first = record.first_token_seconds
    if first is None:
        first = record.seconds or 0.0
    return first > first_token_limit(record) or decode_excess(record) > DECODE_SECONDS


def first_token_limit(record: UsageRecord) -> float:
    """Return the seconds after which a request's first token is slow."""
    if record.target_first_token_seconds is not None:
        return record.target_first_token_seconds
    work = (record.predicted_transfer_seconds or 0.0) + (record.predicted_prefill_seconds or 0.0)
    return FIRST_TOKEN_SECONDS + FACTOR * work


def decode_limit(record: UsageRecord) -> float | None:
    """Return the seconds that decoding may take; None: nothing is known."""
    each = record.target_token_seconds
    if each is None and record.predicted_token_seconds is not None:
        each = FACTOR * record.predicted_token_seconds
    if each is None or record.output_tokens is None:
        return None
    return each * (record.output_tokens / max(1, len(record.finish_reasons)))


def decode_excess(record: UsageRecord) -> float:
    """Return the seconds by which the tokens after the first came later than they may.

    That is also because the decode worker waited for the KV of the prompt.
    """
    limit = decode_limit(record)
    if limit is None or record.seconds is None or record.first_token_seconds is None:
        return 0.0
    return max(0.0, record.seconds - record.first_token_seconds - limit)
