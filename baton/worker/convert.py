"""Convert between messages of the wire and the engine's own types."""

import math
from collections.abc import Sequence

from baton.engine.base import (
    Admitted,
    Ended,
    EndReason,
    EngineInfo,
    Sampling,
    SequenceRequest,
    Stopping,
    TokenLogprob,
    Tokens,
)
from baton.errors import BatonError, Reason
from baton.internal.v1 import worker_pb2
from baton.v1 import common_pb2
from baton.worker.kv.fetch import FetchResult

MAX_CHOICES = 16

_REASONS = {
    EndReason.STOP: common_pb2.FINISH_REASON_STOP,
    EndReason.LENGTH: common_pb2.FINISH_REASON_LENGTH,
    EndReason.PREFILLED: common_pb2.FINISH_REASON_PREFILLED,
}


def sequence_request(
    start: worker_pb2.Start, sequence_id: int, root: bytes, info: EngineInfo
) -> SequenceRequest:
    """Return the sequence that a Start asks for.

    Frontends validate what clients send; this guards the engine against a frontend that did not.

    Raises:
        BatonError: a field is out of range.
    """
    prompt = tuple(start.prompt_token_ids)
    output = tuple(start.generate.output_so_far) if start.HasField("generate") else ()
    _check_tokens(prompt, "prompt_token_ids", info)
    _check_tokens(output, "output_so_far", info)
    if not prompt:
        raise BatonError(Reason.INVALID_FIELD, "the prompt is empty", field="prompt_token_ids")
    max_tokens = start.stopping.max_tokens
    if max_tokens <= len(output):
        raise BatonError(
            Reason.INVALID_FIELD,
            f"max_tokens is {max_tokens} and the output has {len(output)} tokens already",
            field="stopping.max_tokens",
        )
    if len(prompt) + max_tokens > info.context_tokens:
        raise BatonError(
            Reason.CONTEXT_LENGTH_EXCEEDED,
            f"{len(prompt)} prompt tokens and {max_tokens} output tokens exceed the context of "
            f"{info.context_tokens} tokens",
            field="stopping.max_tokens",
        )
    if not 0 <= start.choice < MAX_CHOICES:
        raise BatonError(
            Reason.INVALID_FIELD,
            f"choice is {start.choice}, not 0 to {MAX_CHOICES - 1}",
            field="choice",
        )
    sampling = _sampling(start.sampling)
    _check_sampling(sampling, info)
    prefill = start.HasField("prefill")
    if prefill and not 1 <= start.prefill.n <= MAX_CHOICES:
        raise BatonError(
            Reason.INVALID_FIELD, f"n is {start.prefill.n}, not 1 to {MAX_CHOICES}", field="n"
        )
    return SequenceRequest(
        id=sequence_id,
        root=root,
        prompt=prompt,
        sampling=sampling,
        stopping=Stopping(
            max_tokens=max_tokens,
            min_tokens=start.stopping.min_tokens,
            stop_token_ids=frozenset(start.stopping.stop_token_ids),
            ignore_eos=start.stopping.ignore_eos,
        ),
        output=output,
        choices=tuple(range(start.prefill.n)) if prefill else (start.choice,),
        prefill_only=prefill,
    )


def _check_tokens(tokens: Sequence[int], field: str, info: EngineInfo) -> None:
    if tokens and not (min(tokens) >= 0 and max(tokens) < info.vocab_tokens):
        raise BatonError(
            Reason.INVALID_FIELD,
            f"{field} has an id outside the vocabulary of {info.vocab_tokens}",
            field=field,
        )


def _sampling(params: common_pb2.SamplingParams) -> Sampling:
    return Sampling(
        seed=params.seed,
        temperature=params.temperature if params.HasField("temperature") else 1.0,
        top_p=params.top_p if params.HasField("top_p") else 1.0,
        top_k=params.top_k,
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=(
            params.repetition_penalty if params.HasField("repetition_penalty") else 1.0
        ),
        logit_bias=dict(params.logit_bias),
        logprobs=params.logprobs if params.HasField("logprobs") else None,
    )


def _check_sampling(sampling: Sampling, info: EngineInfo) -> None:
    """Refuse what cannot be computed with: it would fail the engine, and with it everybody."""
    _check_tokens(list(sampling.logit_bias), "logit_bias", info)
    in_range = {
        "temperature": 0 <= sampling.temperature < math.inf,
        "top_p": 0 < sampling.top_p <= 1,
        "top_k": sampling.top_k >= 0,
        "min_p": 0 <= sampling.min_p <= 1,
        "presence_penalty": math.isfinite(sampling.presence_penalty),
        "frequency_penalty": math.isfinite(sampling.frequency_penalty),
        "repetition_penalty": 0 < sampling.repetition_penalty < math.inf,
        "logit_bias": all(map(math.isfinite, sampling.logit_bias.values())),
        "logprobs": sampling.logprobs is None or sampling.logprobs >= 0,
    }
    for field, good in in_range.items():
        if not good:
            raise BatonError(Reason.INVALID_FIELD, f"{field} is out of range", field=field)


def stream_tokens(stream_id: int, tokens: Tokens) -> worker_pb2.StreamTokens:
    """Return new tokens as one entry of an EngineStep."""
    return worker_pb2.StreamTokens(
        stream_id=stream_id,
        choice=tokens.choice,
        position=tokens.position,
        token_ids=tokens.token_ids,
        logprobs=[_logprob(entry) for entry in tokens.logprobs],
    )


def _logprob(entry: TokenLogprob) -> common_pb2.TokenLogprob:
    top = [common_pb2.TopLogprob(token_id=token, logprob=value) for token, value in entry.top]
    return common_pb2.TokenLogprob(logprob=entry.logprob, top=top)


def prepared_frame(
    stream_id: int, admitted: Admitted, fetched: FetchResult, ready_tokens: int
) -> worker_pb2.FrameFromWorker:
    """Return the frame that says how much of a stream's context is in the engine."""
    return worker_pb2.FrameFromWorker(
        prepared=worker_pb2.Prepared(
            stream_id=stream_id,
            ready_tokens=ready_tokens,
            local_tokens=admitted.cached_tokens,
            fetched_bytes=fetched.bytes,
            fetch_seconds=fetched.seconds,
            transport=fetched.transport,
        )
    )


def finished_frame(stream_id: int, ended: Ended, prompt_tokens: int) -> worker_pb2.FrameFromWorker:
    """Return the last frame of a stream that ended by itself."""
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
        )
    )


def failed_frame(stream_id: int, error: BatonError) -> worker_pb2.FrameFromWorker:
    """Return the last frame of a stream that ended badly."""
    failed = worker_pb2.StreamFailed(stream_id=stream_id, status=error.to_status())
    return worker_pb2.FrameFromWorker(failed=failed)
