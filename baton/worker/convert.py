"""Convert between wire messages and the engine's own types."""

import math
from hashlib import sha256

from baton.engine.base import (
    PICTURES,
    EngineInfo,
    QueueFullError,
    SequenceRequest,
    UnsupportedFeatureError,
)
from baton.engine.events import Admitted, EndReason, PromptScored, SequenceEnded
from baton.engine.pictures import PictureError
from baton.engine.work_order import AGE, BY_ARRIVAL, WorkOrder
from baton.errors import BatonError, Reason, invalid_field
from baton.internal.v1 import worker_pb2
from baton.kv.keys import PlaceholderRun, check_runs
from baton.request.limits import MAX_CHOICES, MAX_PROMPT_LOGPROBS
from baton.sampling import (
    InvalidParameterError,
    SamplingParams,
    check,
    check_token_ids,
    check_vocabulary,
)
from baton.structured.errors import GrammarError, GrammarsBusyError
from baton.v1 import common_pb2
from baton.worker.kv.fetch import FetchResult

_REASONS = {
    EndReason.STOP: worker_pb2.END_REASON_STOP,
    EndReason.LENGTH: worker_pb2.END_REASON_LENGTH,
    EndReason.PREFILLED: worker_pb2.END_REASON_PREFILLED,
}
_CLASS_RANKS = {
    common_pb2.PRIORITY_CLASS_PREMIUM: 0,
    common_pb2.PRIORITY_CLASS_INTERACTIVE: 1,
    common_pb2.PRIORITY_CLASS_BATCH: 2,
}
"""Ranks of priority classes; the lowest is first. Unlisted classes have the rank of interactive."""
_FIELDS = {"adapters": "adapter", "grammar": "grammar", PICTURES: "pictures"}
"""Request fields that need a feature which not every engine supports."""


def sequence_request(
    start: worker_pb2.Start,
    sequence_id: int,
    root: bytes,
    info: EngineInfo,
    order: WorkOrder = BY_ARRIVAL,
    adapter: str = "",
) -> SequenceRequest:
    """Return the sequence request that a Start describes.

    Frontends validate client requests; this protects the engine, and all other requests with it,
    from a frontend that did not.

    Args:
        start: the Start.
        sequence_id: unique among open sequences.
        root: root of its KV keys.
        info: of the engine.
        order: its order among waiting sequences.
        adapter: key of its adapter in the engine; empty: none.

    Raises:
        BatonError: a field is out of range.
    """
    prompt = tuple(start.prompt_token_ids)
    output = tuple(start.generate.output_so_far) if start.HasField("generate") else ()
    sampling = SamplingParams.from_proto(start.sampling)
    try:
        check_token_ids("prompt_token_ids", prompt, info.vocab_tokens)
        check_token_ids("output_so_far", output, info.vocab_tokens)
        check(sampling)
        check_vocabulary(sampling, info.vocab_tokens)
    except InvalidParameterError as error:
        raise invalid_field(error.field, str(error)) from None
    if not prompt:
        raise invalid_field("prompt_token_ids", "the prompt is empty")
    max_tokens = sampling.max_tokens or 0
    if max_tokens <= len(output):
        raise invalid_field(
            "max_tokens", f"{max_tokens}, and the output already has {len(output)} tokens"
        )
    if len(prompt) + max_tokens > info.context_tokens:
        raise BatonError(
            Reason.CONTEXT_LENGTH_EXCEEDED,
            f"{len(prompt)} prompt tokens and {max_tokens} output tokens exceed the context of "
            f"{info.context_tokens} tokens",
            field="max_tokens",
        )
    if not 0 <= start.choice < MAX_CHOICES:
        raise invalid_field("choice", f"{start.choice} is out of range: 0 to {MAX_CHOICES - 1}")
    prefill = start.HasField("prefill")
    if prefill and not 1 <= start.prefill.n <= MAX_CHOICES:
        raise invalid_field("n", f"{start.prefill.n} is out of range: 1 to {MAX_CHOICES}")
    if start.expected_cached_tokens < 0:
        raise invalid_field(
            "expected_cached_tokens",
            f"{start.expected_cached_tokens} is out of range: at least 0",
        )
    if not 0 <= start.prompt_logprobs <= MAX_PROMPT_LOGPROBS:
        raise invalid_field(
            "prompt_logprobs",
            f"{start.prompt_logprobs} is out of range: 0 to {MAX_PROMPT_LOGPROBS}",
        )
    return SequenceRequest(
        id=sequence_id,
        root=root,
        prompt=prompt,
        sampling=sampling,
        output=output,
        choices=tuple(range(start.prefill.n)) if prefill else (start.choice,),
        prefill_only=prefill,
        prompt_logprobs=start.prompt_logprobs if start.HasField("prompt_logprobs") else None,
        adapter=adapter,
        order=order,
        step_seconds=start.order.step_seconds,
        expected_cached_tokens=start.expected_cached_tokens,
        runs=_picture_runs(start, info),
    )


def _picture_runs(start: worker_pb2.Start, info: EngineInfo) -> tuple[PlaceholderRun, ...]:
    """Return the tokens that stand for a Start's pictures.

    Raises:
        BatonError: the engine takes no pictures, or another number of tokens stands for one.
    """
    if not start.pictures:
        return ()
    if info.pictures is None:
        raise refused(UnsupportedFeatureError(PICTURES))
    prompt, tokens = start.prompt_token_ids, info.pictures.tokens
    runs = []
    for at, picture in enumerate(start.pictures):
        end = picture.offset + len(tokens)
        if picture.offset < 0 or tuple(prompt[picture.offset : end]) != tokens:
            raise invalid_field(
                f"pictures[{at}].offset",
                f"the {len(tokens)} tokens of a picture do not stand at {picture.offset}",
            )
        digest = sha256(picture.data).digest()
        runs.append(PlaceholderRun(picture.offset, len(tokens), digest))
    try:
        check_runs(runs, len(prompt))
    except ValueError as error:
        raise invalid_field("pictures", str(error)) from None
    return tuple(runs)


def work_order(start: worker_pb2.Start, tokens_per_second: float, now: float) -> WorkOrder:
    """Return the position of a Start among waiting sequences.

    Without an order from a router, it follows from the class and the remaining work, as a router
    would compute it.

    Args:
        start: the Start.
        tokens_per_second: prompt tokens that the engine computes per second; 0: not known yet.
        now: seconds since 1970.

    Raises:
        BatonError: a field of its order is out of range.
    """
    order = start.order
    if not start.HasField("order"):
        rank = _CLASS_RANKS.get(start.context.priority, 1)
        left = max(1, len(start.prompt_token_ids) - start.expected_cached_tokens)
        seconds = left / tokens_per_second if tokens_per_second > 0 else 0.0
        return WorkOrder(0, rank, 0.0, seconds + AGE * now)
    for name in ("tier", "priority_class", "tenant_lead", "step_seconds"):
        value = getattr(order, name)
        if not 0 <= value < math.inf:
            raise invalid_field(f"order.{name}", f"{value} is out of range: at least 0, finite")
    if not math.isfinite(order.key):
        raise invalid_field("order.key", f"{order.key} is not a finite number of seconds")
    return WorkOrder(order.tier, order.priority_class, order.tenant_lead, order.key)


def refused(error: QueueFullError | GrammarsBusyError | ValueError) -> BatonError:
    """Return the error that a frontend receives for a sequence that the engine rejected."""
    if isinstance(error, GrammarsBusyError):
        return BatonError(Reason.OVERLOADED, str(error), retry_after=1.0)
    if isinstance(error, GrammarError):
        return invalid_field("grammar", str(error))
    if isinstance(error, PictureError):
        return invalid_field("messages", str(error))
    if isinstance(error, QueueFullError):
        return BatonError(Reason.OVERLOADED, "the worker's queue is full", retry_after=1.0)
    if isinstance(error, UnsupportedFeatureError):
        field = _FIELDS.get(error.feature)
        name = error.feature if field in (None, error.feature) else f"{field}: {error.feature}"
        what = f"{name} is not supported by this worker; omit it"
        return BatonError(Reason.UNSUPPORTED_PARAMETER, what, field=field)
    return BatonError(Reason.NO_CAPACITY, str(error))


def engine_failure(ended: SequenceEnded) -> BatonError | None:
    """Return the error that a frontend receives for a sequence that the engine aborted, else None.

    The error is not retryable: the same request would most likely fail in the same way on another
    worker.
    """
    if EndReason.ERROR not in ended.reasons:
        return None
    if ended.error_field:
        return invalid_field(ended.error_field, ended.error)
    return BatonError(Reason.INTERNAL, "the engine failed to continue this request")


def prepared_frame(
    stream_id: int, admitted: Admitted, fetched: FetchResult, ready_tokens: int
) -> worker_pb2.FrameFromWorker:
    """Return the frame that reports how much of a stream's context is in the engine."""
    return worker_pb2.FrameFromWorker(
        prepared=worker_pb2.Prepared(
            stream_id=stream_id,
            ready_tokens=ready_tokens,
            local_tokens=admitted.cached_tokens,
            fetched_bytes=fetched.bytes,
            fetch_seconds=fetched.seconds,
            transport=fetched.transport,
            kv_wait_seconds=fetched.wait_seconds,
        )
    )


def prompt_logprobs_frame(stream_id: int, scored: PromptScored) -> worker_pb2.FrameFromWorker:
    """Return the frame with the log probabilities of a stream's prompt."""
    return worker_pb2.FrameFromWorker(
        prompt_logprobs=worker_pb2.PromptLogprobs(
            stream_id=stream_id,
            position=scored.position,
            entries=[entry.to_proto() for entry in scored.logprobs],
        )
    )


def finished_frame(
    stream_id: int, ended: SequenceEnded, prompt_tokens: int, kv_wait_seconds: float
) -> worker_pb2.FrameFromWorker:
    """Return the last frame of a stream that finished normally."""
    return worker_pb2.FrameFromWorker(
        finished=worker_pb2.StreamFinished(
            stream_id=stream_id,
            reasons=[_REASONS[reason] for reason in ended.reasons],
            usage=common_pb2.Usage(
                prompt_tokens=prompt_tokens,
                cached_tokens=ended.cached_tokens,
                computed_tokens=ended.computed_tokens,
                output_tokens=ended.output_tokens,
                queue_seconds=ended.queue_seconds,
                kv_byte_seconds=ended.kv_byte_seconds,
            ),
            kv_wait_seconds=kv_wait_seconds,
        )
    )


def handed_over_frame(stream_id: int, position: int) -> worker_pb2.FrameFromWorker:
    """Return the last frame of a stream that another worker continues, from an output position."""
    handed_over = worker_pb2.StreamHandedOver(stream_id=stream_id, position=position)
    return worker_pb2.FrameFromWorker(handed_over=handed_over)


def failed_frame(stream_id: int, error: BatonError) -> worker_pb2.FrameFromWorker:
    """Return the last frame of a stream that failed."""
    failed = worker_pb2.StreamFailed(stream_id=stream_id, status=error.to_status())
    return worker_pb2.FrameFromWorker(failed=failed)
