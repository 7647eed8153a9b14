"""A request's path says where it ran, and its times add up to those that its client saw."""

from typing import Any, cast

import pytest

from baton.internal.v1 import router_pb2, worker_pb2
from baton.usage.path import MAX_REASON, RequestPath
from baton.v1 import common_pb2
from services.frontend.generation.state.usage import RequestUsage
from services.frontend.placement.placement import Placement
from services.frontend.workers.stream import Phase, WorkerStream, WorkerStreamState

BATCH = common_pb2.RequestContext(priority=common_pb2.PRIORITY_CLASS_BATCH)


def placement(decode: str, prefill: str = "", queued: float = 0.0, **tokens: int) -> Placement:
    decision = router_pb2.Placement(ttft_target_seconds=2.0)
    decision.decode.instance_id = decode
    if prefill:
        decision.prefill.instance_id = prefill
    prediction = decision.prediction
    prediction.queue_seconds, prediction.transfer_seconds = 0.25, 0.125
    prediction.prefill_seconds, prediction.token_seconds = 0.5, 0.0625
    prediction.reason = "r" * 2 * MAX_REASON
    for name, count in tokens.items():
        setattr(prediction, name, count)
    return Placement(decision, None, "router-0", 0, queued_seconds=queued, store="kvstore-0")


def stream(phase: Phase, begun: float, first: float | None, kv_wait: float = 0.0) -> WorkerStream:
    one: Any = object.__new__(WorkerStream)
    one.phase, one.choice, one.instance = phase, 0, "w"
    one.state, one.computes_prompt = WorkerStreamState.RUNNING, phase is Phase.DECODE
    one.begun_at, one.first_at, one.tokens = begun, first, 1
    one.cached_tokens, one.kv_wait_seconds = None, kv_wait
    return cast(WorkerStream, one)


def test_a_pair_of_workers_and_what_each_phase_took() -> None:
    usage = RequestUsage(10, arrived=100.0)
    usage.add_placement(placement("d0", "p0", 3.0, local_tokens=8), 100.0, 103.0)
    usage.first_token_at = 105.0
    prefilled = common_pb2.Usage(queue_seconds=0.25)
    usage.add_stream(stream(Phase.PREFILL, 103.0, 105.0, kv_wait=0.75), prefilled, 105.0)
    decode = stream(Phase.DECODE, 103.0, None)
    decode.computes_prompt = False
    usage.add_transfer(decode, worker_pb2.Prepared(), 105.5)
    path = usage.path(BATCH, 110.0)
    assert path == RequestPath(
        priority_class="batch",
        router="router-0",
        prefill_worker="p0",
        decode_worker="d0",
        kv_store="kvstore-0",
        cache_tier="store",
        router_queue_seconds=3.0,
        prefill_seconds=1.0,
        transfer_seconds=1.25,
        decode_seconds=4.5,
        predicted_first_token_seconds=3.875,
        predicted_queue_seconds=0.25,
        predicted_transfer_seconds=0.125,
        predicted_prefill_seconds=0.5,
        predicted_token_seconds=0.0625,
        target_first_token_seconds=2.0,
        placement_reason="r" * MAX_REASON,
    )


def test_a_move_keeps_what_was_predicted_for_the_first_token() -> None:
    usage = RequestUsage(10, arrived=0.0)
    usage.add_placement(placement("d0"), 0.0, 1.0)
    usage.add_placement(placement("d1", remote_tokens=4), 2.0, 4.0)
    usage.first_token_at = 5.0
    usage.add_placement(placement("d2"), 6.0, 7.0)
    path = usage.path(BATCH, 9.0)
    assert (path.prefill_worker, path.decode_worker, path.moves) == ("d1", "d2", 2)
    assert (path.predicted_first_token_seconds, path.decode_seconds) == (4.875, 4.0)
    assert path.cache_tier == "remote"


@pytest.mark.parametrize("placed", [False, True])
def test_a_request_without_a_token_has_no_times_of_tokens(placed: bool) -> None:
    usage = RequestUsage(10, arrived=0.0)
    if placed:
        usage.add_placement(placement("d0", engine_tokens=1), 0.0, 1.0)
    path = usage.path(BATCH, 9.0)
    assert (path.decode_seconds, path.prefill_seconds) == (None, None)
    assert path.cache_tier == ("engine" if placed else "")
    assert path.priority_class == "batch"


def test_a_random_placement_was_not_predicted() -> None:
    usage = RequestUsage(10, arrived=0.0)
    at_random = Placement(router_pb2.Placement(), None, "", 0)
    at_random.decision.decode.instance_id = "d0"
    usage.add_placement(at_random, 0.0, 1.0)
    path = usage.path(BATCH, 9.0)
    assert (path.router, path.decode_worker) == ("", "d0")
    assert path.predicted_first_token_seconds is None
