"""Why a request was slow or failed, as a sentence: pure."""

from typing import NamedTuple

from baton.history.rule import decode_limit, first_token_limit, is_slow
from baton.request.durations import duration
from baton.usage.record import LOST, UsageRecord


class RequestPhase(NamedTuple):
    """One part of a request's time, in seconds."""

    name: str
    """`router queue`, `worker queue`, `transfer`, `prefill`, `decode` or `moves`."""
    seconds: float
    expected: float
    what: str
    """What took the time, and where."""
    compared: str
    """What `expected` is."""

    @property
    def excess(self) -> float:
        """Seconds beyond what was expected."""
        return self.seconds - self.expected


def phases_of(record: UsageRecord) -> list[RequestPhase]:
    """Return the parts of a request's time, in their order."""
    if record.provider:
        waited = record.first_token_seconds or record.seconds or 0.0
        what = f"waiting for the first token of the provider {record.provider}"
        target = record.target_first_token_seconds or 0.0
        return [RequestPhase("provider", waited, target, what, "allowed by its target")]
    prefill = record.prefill_worker or "an unknown worker"
    decode = record.decode_worker or "an unknown worker"
    store = f"from store {record.kv_store} " if record.kv_store else ""
    limit = decode_limit(record)
    target = record.target_token_seconds is not None
    router = f"the queue of {record.router}" if record.router else "the router's queue"
    name = record.priority_class or "interactive"
    found = [
        RequestPhase(
            "router queue",
            record.router_queue_seconds or 0.0,
            0.0,
            f"in {router}, class {name}, until a worker had room",
            "predicted",
        ),
        RequestPhase(
            "worker queue",
            record.queue_seconds or 0.0,
            record.predicted_queue_seconds or 0.0,
            f"in the queue of worker {prefill}",
            "predicted",
        ),
        RequestPhase(
            "transfer",
            record.transfer_seconds or 0.0,
            record.predicted_transfer_seconds or 0.0,
            f"waiting for KV {store}at worker {prefill}",
            "predicted",
        ),
        RequestPhase(
            "prefill",
            record.prefill_seconds or 0.0,
            record.predicted_prefill_seconds or 0.0,
            f"computing the prompt on worker {prefill}",
            "predicted",
        ),
    ]
    known = sum(phase.seconds for phase in found)
    if record.moves:
        lost = (record.first_token_seconds or record.seconds or 0.0) - known
        moves = f"{record.moves} move{'s' if record.moves > 1 else ''}"
        what = f"lost in {moves} to another worker before the first token"
        found.append(RequestPhase("moves", max(0.0, lost), 0.0, what, "predicted"))
    if record.decode_seconds is not None and limit is not None:
        compared = "allowed by its target" if target else "three times its other streams' pace"
        what = f"decoding {record.output_tokens} tokens on worker {decode}"
        found.append(RequestPhase("decode", record.decode_seconds, limit, what, compared))
    return found


def cause_of(record: UsageRecord, error: str = "") -> str:
    """Return why a request was slow or failed, or that it was neither.

    Args:
        record: the request.
        error: message of the error that ended it.
    """
    sentences = []
    slow = is_slow(record)
    if record.outcome == LOST:
        return "Its frontend was lost before it ended; only its start is known."
    if record.outcome != "ok":
        sentences.append(f"Ended with {record.outcome}{f': {error}' if error else ''}.")
    phases = phases_of(record)
    worst = max(phases, key=lambda phase: phase.excess)
    if slow and worst.excess > 0:
        sentences.append(
            f"Slow because of {worst.name}: {duration(worst.seconds)} {worst.what}; "
            f"{duration(worst.expected)} {worst.compared}."
        )
    elif slow:
        longest = max(phases, key=lambda phase: phase.seconds)
        took = f"most of it, {duration(longest.seconds)}, {longest.what}"
        sentences.append(f"Slow, as was predicted: {took}.")
    elif record.outcome == "ok":
        sentences.append("Not slow.")
    sentences.append(_first_token(record))
    return " ".join(filter(None, sentences))


def _first_token(record: UsageRecord) -> str:
    first = record.first_token_seconds
    if first is None:
        return "There was no first token."
    parts = [f"First token after {duration(first)}"]
    if record.predicted_first_token_seconds is not None:
        parts.append(
            f"predicted when it was placed: {duration(record.predicted_first_token_seconds)}"
        )
    name = "target" if record.target_first_token_seconds is not None else "slow from"
    parts.append(f"{name}: {duration(first_token_limit(record))}")
    return f"{parts[0]} ({', '.join(parts[1:])})."
