"""Report a sequence's progress as the engine contract's events, for every engine of paged KV."""

from collections.abc import Sequence

from baton.engine.events import (
    Admitted,
    BlocksReady,
    EndReason,
    Event,
    SampledTokens,
    SequenceEnded,
)
from baton.engine.paged.sequence import LiveSequence
from baton.engine.sampling.draw import Sampled


def admitted(sequence: LiveSequence, block_tokens: int) -> Admitted:
    """Return the event of a sequence that has pages and is not started."""
    keys = tuple(sequence.keys)
    if sequence.partial_key is not None:
        keys += (sequence.partial_key,)
    cached = sequence.cached_blocks * block_tokens
    return Admitted(sequence.id, cached, keys, sequence.cut_ready_tokens or 0, sequence.missing)


def report_sampled(
    sequence: LiveSequence, sampled: Sequence[Sampled], events: list[Event]
) -> tuple[EndReason, ...] | None:
    """Report one token of each choice, and append it to the sequence.

    Returns:
        Why each choice ends with it; None if the sequence continues.
    """
    request = sequence.request
    position = sequence.output_tokens
    for choice, one in zip(request.choices, sampled, strict=True):
        logprobs = () if one.logprob is None else (one.logprob,)
        events.append(SampledTokens(request.id, choice, position, (one.token,), logprobs))
    sequence.sampled_tokens += len(sampled)
    if not request.prefill_only:
        sequence.tokens.append(sampled[0].token)
    reasons = [sequence.end_reason(one.token, position) for one in sampled]
    if request.prefill_only or reasons[0] is not None:
        return tuple(reason or EndReason.PREFILLED for reason in reasons)
    return None


def report_ended(
    sequence: LiveSequence,
    reasons: tuple[EndReason, ...],
    block_bytes: int,
    events: list[Event],
    error: str = "",
    error_field: str = "",
) -> None:
    """Report the end, preceded by a prefill's partial block unless an error ended it."""
    request = sequence.request
    if request.prefill_only and sequence.partial_key is not None and not error:
        events.append(BlocksReady(sequence.id, sequence.reported, (sequence.partial_key,)))
        sequence.partial_reported = True
    events.append(
        SequenceEnded(
            id=sequence.id,
            reasons=reasons,
            computed_tokens=sequence.forward_tokens,
            cached_tokens=sequence.cached_tokens,
            output_tokens=sequence.sampled_tokens,
            queue_seconds=sequence.queue_seconds,
            kv_byte_seconds=sequence.page_seconds * block_bytes,
            error=error,
            error_field=error_field,
        )
    )
