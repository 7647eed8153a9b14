"""The next actions of a request, decided from its outputs and streams alone.

    place ─▶ Prefill on one worker, Prepare per choice on another ─▶ first tokens to the client,
    Generate ─▶ tokens to the client … ─▶ every choice ended ─▶ last reports ─▶ finish

Without a prefill worker in the placement, the decode worker computes the prompt itself. A token is
a pure function of the request and of the tokens before it. A lost stream is therefore just a
missing stream: the next one starts from the output so far. Workers that cannot guarantee this for
sampling report it: a sampled output that a decode worker has begun is moved neither from nor to
such a worker.
"""

from collections.abc import Collection, Sequence

import grpc

from baton.errors import BatonError, Reason
from services.frontend.generation.state.actions import (
    Action,
    AwaitReports,
    Fail,
    Finish,
    Place,
    PrefillDone,
    Release,
    SendGenerate,
    StartDecode,
    StartPrefill,
    UpdateSources,
)
from services.frontend.generation.state.output import ChoiceOutput
from services.frontend.placement.placement import Placement
from services.frontend.workers.stream import Phase, WorkerStream, WorkerStreamState

_RETRYABLE = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
)
"""Codes that say nothing about the request: another worker may succeed."""


def worker_lost() -> BatonError:
    """Return the error of a stream whose worker is gone."""
    return BatonError(Reason.WORKER_LOST, "the worker of this request was lost", retry_after=1.0)


def stream_lost() -> BatonError:
    """Return the error of a sampled stream that no other worker would continue identically."""
    return BatonError(
        Reason.STREAM_LOST,
        "the worker of this sampled stream was lost, and no other worker samples the same tokens: "
        "send the request again",
        retry_after=1.0,
    )


def reconcile(
    outputs: Sequence[ChoiceOutput],
    streams: Collection[WorkerStream],
    failed: Sequence[WorkerStream],
    *,
    placements: int,
    max_placements: int,
    plainly_greedy: bool,
    placement: Placement | None = None,
    report_deadline_passed: bool = False,
) -> list[Action]:
    """Return the next actions, in order; at most one Place, Finish or Fail, which comes last.

    Level-triggered: the same state leads to the same actions, whatever happened and in whichever
    order. Pure: has no effects, reads no clock, changes no argument.

    Args:
        outputs: one per choice.
        streams: the open streams: at most one prefill stream, which serves all choices, and one
            decode stream per choice.
        failed: the streams that failed, oldest first; each has its error.
        placements: how many placements the request has had.
        max_placements: the most placements, including the first one.
        plainly_greedy: any worker continues an output as the previous one would have.
        placement: the latest placement, if it was found just now: missing streams start on it.
        report_deadline_passed: the time for workers to report usage has passed.
    """
    # One pass each, without comprehensions: a request comes here five times.
    actions: list[Action] = []
    decodes: dict[int, WorkerStream] = {}
    has_prefill = False
    for stream in streams:
        if stream.phase is Phase.PREFILL:
            has_prefill = True
        elif outputs[stream.choice].reason is None:
            decodes[stream.choice] = stream
        elif stream.state is not WorkerStreamState.ENDING:
            # Workers know no stop strings, and a stream waiting for Generate would wait in vain. A
            # stream that produced the last token of its choice by the engine's own rules ends by
            # itself.
            actions.append(Release(stream))
    missing: list[ChoiceOutput] = []
    needs_prefill = False
    for output in outputs:
        if output.reason is None and output.choice not in decodes:
            missing.append(output)
            needs_prefill |= not output.token_ids
    if not (decodes or missing):
        reported = report_deadline_passed or len(actions) == len(streams)
        return [*actions, Finish() if reported else AwaitReports()]

    waiting: list[WorkerStream] = []
    for stream in decodes.values():
        if stream.state is WorkerStreamState.PREPARED:
            if outputs[stream.choice].token_ids:
                actions.append(SendGenerate(stream))
            else:
                waiting.append(stream)
    needs_prefill = not has_prefill and (needs_prefill or bool(waiting))
    for stream in failed:
        is_prefill = stream.phase is Phase.PREFILL
        needed = needs_prefill if is_prefill else outputs[stream.choice] in missing
        if needed and stream.error.code not in _RETRYABLE:
            return [Fail(stream.error)]
    if not plainly_greedy:
        to_exact = placement is None or placement.exact_continuation
        for output in missing:
            if output.decoded and not (output.exact_continuation and to_exact):
                return [Fail(stream_lost())]

    prefill_goes_on = has_prefill or needs_prefill
    if placement is not None and needs_prefill:
        prefill_goes_on = placement.decision.HasField("prefill")
        if prefill_goes_on:
            actions.append(StartPrefill(placement))
            actions += [UpdateSources(stream, placement.decision.sources) for stream in waiting]
        else:  # nothing will fulfil their wait: they start over and compute the prompt
            actions += map(Release, waiting)
            missing += [outputs[stream.choice] for stream in waiting]
    if not prefill_goes_on:
        for stream in decodes.values():
            if stream.awaits_kv and stream not in waiting:
                actions.append(PrefillDone(stream))
    if placement is not None:
        for output in missing:
            prepare = prefill_goes_on and not output.token_ids
            choice, waits = output.choice, prefill_goes_on
            actions.append(StartDecode(placement, choice, prepare=prepare, wait_for_kv=waits))
    elif needs_prefill or missing:
        if placements >= max_placements:
            return [Fail(failed[-1].error if failed else worker_lost())]
        actions.append(Place(frozenset(stream.instance for stream in failed)))
    return actions
