"""What a request does next, in every state it can be in."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry.trace import INVALID_SPAN

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2, router_pb2, worker_pb2
from baton.request.stream_events import FinishReason
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
from services.frontend.generation.state.reconcile import reconcile
from services.frontend.placement.placement import Placement
from services.frontend.requests.request import ResolvedRequest
from services.frontend.workers.stream import Phase, WorkerStream, WorkerStreamState

SOURCES = [kvstore_pb2.KvSource(store_id="store", address="host:1")]
PLACE = Place(frozenset())
A, B = 64, 65
"""Tokens."""

MAX_PLACEMENTS = 3


class Connection:
    """A worker's connection, as far as streams look at it."""

    def __init__(self, instance: str) -> None:
        self.target = router_pb2.Target(instance_id=instance)


def stream(phase: Phase, choice: int, instance: str, start: worker_pb2.Start) -> WorkerStream:
    connection: Any = Connection(instance)
    return WorkerStream(phase, choice, connection, start, INVALID_SPAN, 0.0)


def prefill(instance: str = "p0") -> WorkerStream:
    return stream(Phase.PREFILL, 0, instance, worker_pb2.Start(prefill=worker_pb2.Prefill(n=1)))


def prepared(choice: int = 0, instance: str = "d0") -> WorkerStream:
    """A decode stream that waits for Generate."""
    start = worker_pb2.Start(prepare=worker_pb2.Prepare())
    return stream(Phase.DECODE, choice, instance, start)


def decode(choice: int = 0, instance: str = "d0", *, awaits_kv: bool = False) -> WorkerStream:
    """A decode stream that runs."""
    start = worker_pb2.Start(generate=worker_pb2.Generate(wait_for_kv=awaits_kv))
    return stream(Phase.DECODE, choice, instance, start)


def ending(choice: int = 0) -> WorkerStream:
    """A decode stream that gave the last token of its choice."""
    made = decode(choice)
    made.state = WorkerStreamState.ENDING
    return made


def lost(made: WorkerStream, reason: Reason = Reason.WORKER_LOST) -> WorkerStream:
    made.error = BatonError(reason, "why")
    return made


def placement(prefills: bool = True, *, exact: bool = True) -> Placement:
    decision = router_pb2.Placement(decode=router_pb2.Target(instance_id="d1"), sources=SOURCES)
    if prefills:
        decision.prefill.instance_id = "p1"
    return Placement(decision, None, "router", 1, exact)


@pytest.fixture
def outputs(request_for: Callable[..., ResolvedRequest]) -> Callable[..., list[ChoiceOutput]]:
    """Make outputs, each with the given tokens; None: it has ended."""

    def make(*token_ids: Sequence[int] | None) -> list[ChoiceOutput]:
        made = [ChoiceOutput(request_for(), choice) for choice in range(len(token_ids))]
        for output, ids in zip(made, token_ids, strict=True):
            output.push([A] if ids is None else ids)
            if ids is None:
                output.end(FinishReason.STOP)
        return made

    return make


Outputs = Callable[..., list[ChoiceOutput]]


def decide(
    outputs: list[ChoiceOutput],
    *streams: WorkerStream,
    failed: Sequence[WorkerStream] = (),
    placements: int = 1,
    placement: Placement | None = None,
    late: bool = False,
    greedy: bool = False,
) -> list[Action]:
    return reconcile(
        outputs,
        streams,
        failed,
        placements=placements,
        max_placements=MAX_PLACEMENTS,
        plainly_greedy=greedy,
        placement=placement,
        report_deadline_passed=late,
    )


def test_a_new_request_is_placed(outputs: Outputs) -> None:
    assert decide(outputs([], []), placements=0) == [PLACE]


def test_a_placement_with_prefill_starts_prefill_and_prepares_every_choice(
    outputs: Outputs,
) -> None:
    new = placement()
    assert decide(outputs([], []), placement=new) == [
        StartPrefill(new),
        StartDecode(new, 0, prepare=True, wait_for_kv=True),
        StartDecode(new, 1, prepare=True, wait_for_kv=True),
    ]


def test_a_placement_without_prefill_lets_decode_compute_the_prompt(outputs: Outputs) -> None:
    new = placement(prefills=False)
    assert decide(outputs([], []), placement=new) == [
        StartDecode(new, 0, prepare=False, wait_for_kv=False),
        StartDecode(new, 1, prepare=False, wait_for_kv=False),
    ]


def test_a_resumed_request_needs_no_prefill(outputs: Outputs) -> None:
    assert decide(outputs([A]), placements=0) == [PLACE]
    new = placement()
    assert decide(outputs([A]), placement=new) == [
        StartDecode(new, 0, prepare=False, wait_for_kv=False)
    ]


def test_a_resumed_request_that_had_ended_finishes_without_a_placement(outputs: Outputs) -> None:
    assert decide(outputs(None), placements=0) == [Finish()]


def test_while_streams_run_there_is_nothing_to_do(outputs: Outputs) -> None:
    assert decide(outputs([]), prefill(), prepared()) == []
    assert decide(outputs([]), decode()) == []
    assert decide(outputs([A, B]), decode()) == []
    assert decide(outputs([A]), prefill(), decode(awaits_kv=True)) == []


def test_the_first_token_lets_its_choice_decode(outputs: Outputs) -> None:
    first, second = prepared(0), prepared(1)
    assert decide(outputs([], [B]), prefill(), first, second) == [SendGenerate(second)]


def test_prefill_that_ends_is_told_to_those_that_wait_for_kv(outputs: Outputs) -> None:
    waits = decode(0, awaits_kv=True)
    assert decide(outputs([A], [A]), waits, decode(1)) == [PrefillDone(waits)]


def test_tokens_and_the_end_of_prefill_at_once_are_told_in_that_order(outputs: Outputs) -> None:
    waits = prepared()
    assert decide(outputs([A]), waits) == [SendGenerate(waits), PrefillDone(waits)]


def test_prefill_lost_before_tokens_is_placed_again_and_decode_goes_on_waiting(
    outputs: Outputs,
) -> None:
    failed, first, second = [lost(prefill("p0"))], prepared(0), prepared(1)
    assert decide(outputs([], []), first, second, failed=failed) == [Place(frozenset({"p0"}))]
    new = placement()
    assert decide(outputs([], []), first, second, failed=failed, placement=new) == [
        StartPrefill(new),
        UpdateSources(first, new.decision.sources),
        UpdateSources(second, new.decision.sources),
    ]


def test_prefill_lost_before_tokens_without_another_lets_decode_start_over(
    outputs: Outputs,
) -> None:
    failed, waits, new = [lost(prefill())], prepared(), placement(prefills=False)
    assert decide(outputs([]), waits, failed=failed, placement=new) == [
        Release(waits),
        StartDecode(new, 0, prepare=False, wait_for_kv=False),
    ]


def test_prefill_lost_after_tokens_is_not_missed(outputs: Outputs) -> None:
    waits = decode(awaits_kv=True)
    assert decide(outputs([A]), waits, failed=[lost(prefill())]) == [PrefillDone(waits)]
    waits.awaits_kv = False
    assert decide(outputs([A]), waits, failed=[lost(prefill())]) == []


def test_prefill_lost_between_first_tokens_is_replaced_for_the_choice_without(
    outputs: Outputs,
) -> None:
    failed, runs, waits = [lost(prefill("p0"))], decode(0, awaits_kv=True), prepared(1)
    assert decide(outputs([A], []), runs, waits, failed=failed) == [Place(frozenset({"p0"}))]
    new = placement()
    assert decide(outputs([A], []), runs, waits, failed=failed, placement=new) == [
        StartPrefill(new),
        UpdateSources(waits, new.decision.sources),
    ]
    new = placement(prefills=False)
    assert decide(outputs([A], []), runs, waits, failed=failed, placement=new) == [
        Release(waits),
        PrefillDone(runs),
        StartDecode(new, 1, prepare=False, wait_for_kv=False),
    ]


def test_decode_lost_before_prepared_is_prepared_elsewhere(outputs: Outputs) -> None:
    failed = [lost(prepared(0, "d0"))]
    assert decide(outputs([]), prefill(), failed=failed) == [Place(frozenset({"d0"}))]
    new = placement()
    assert decide(outputs([]), prefill(), failed=failed, placement=new) == [
        StartDecode(new, 0, prepare=True, wait_for_kv=True)
    ]


def test_decode_lost_mid_stream_goes_on_from_the_output_so_far(outputs: Outputs) -> None:
    failed = [lost(decode())]
    assert decide(outputs([A, B]), failed=failed) == [Place(frozenset({"d0"}))]
    new = placement()
    assert decide(outputs([A, B]), failed=failed, placement=new) == [
        StartDecode(new, 0, prepare=False, wait_for_kv=False)
    ]


def test_decode_lost_while_prefill_still_writes_waits_for_its_kv_elsewhere(
    outputs: Outputs,
) -> None:
    new = placement()
    assert decide(outputs([A]), prefill(), failed=[lost(decode())], placement=new) == [
        StartDecode(new, 0, prepare=False, wait_for_kv=True)
    ]


def begun(output: ChoiceOutput, *, exact: bool) -> ChoiceOutput:
    """Note that a decode worker gave some of its tokens."""
    output.decoded, output.exact_continuation = True, exact
    return output


def is_stream_lost(actions: list[Action]) -> bool:
    (action,) = actions
    return (
        isinstance(action, Fail)
        and action.error.reason is Reason.STREAM_LOST
        and action.error.retry_after is not None
    )


def test_sampled_output_of_an_inexact_worker_goes_nowhere_else(outputs: Outputs) -> None:
    first, other = outputs([A, B], [A])
    begun(first, exact=False)
    failed = [lost(decode(0, "d0"))]
    assert is_stream_lost(decide([first, other], decode(1), failed=failed))
    assert is_stream_lost(decide([first]))  # its stream ended without a reason
    own = lost(decode(), Reason.INTERNAL)  # what says more is told
    assert decide([first], failed=[own]) == [Fail(own.error)]
    place = [Place(frozenset({"d0"}))]
    assert decide([first, other], decode(0), failed=[lost(decode(1))]) == place
    assert decide([first], failed=failed, greedy=True) == place


def test_sampled_output_of_an_exact_worker_does_not_come_to_an_inexact_one(
    outputs: Outputs,
) -> None:
    (output,) = outputs([A, B])
    begun(output, exact=True)
    failed, new = [lost(decode(0, "d0"))], placement(exact=False)
    assert decide([output], failed=failed) == [Place(frozenset({"d0"}))]
    assert is_stream_lost(decide([output], failed=failed, placement=new))
    goes_on = [StartDecode(new, 0, prepare=False, wait_for_kv=False)]
    assert decide([output], failed=failed, placement=new, greedy=True) == goes_on


def test_decode_lost_before_its_first_draw_goes_on_at_inexact_workers(outputs: Outputs) -> None:
    new = placement(exact=False)
    for ids in ([], [A]):  # none is drawn, or prefill drew the first token
        failed = [lost(prepared(0, "d0"))]
        assert decide(outputs(ids), prefill(), failed=failed) == [Place(frozenset({"d0"}))]
        assert decide(outputs(ids), prefill(), failed=failed, placement=new) == [
            StartDecode(new, 0, prepare=not ids, wait_for_kv=True)
        ]


def test_one_choice_lost_leaves_the_others_alone(outputs: Outputs) -> None:
    failed, new = [lost(decode(1, "d0"))], placement()
    assert decide(outputs([A], [B], None), decode(0), failed=failed) == [Place(frozenset({"d0"}))]
    assert decide(outputs([A], [B], None), decode(0), failed=failed, placement=new) == [
        StartDecode(new, 1, prepare=False, wait_for_kv=False)
    ]


def test_both_phases_lost_are_placed_once(outputs: Outputs) -> None:
    failed, new = [lost(prefill("p0")), lost(prepared(0, "d0"))], placement()
    assert decide(outputs([]), failed=failed) == [Place(frozenset({"p0", "d0"}))]
    assert decide(outputs([]), failed=failed, placement=new) == [
        StartPrefill(new),
        StartDecode(new, 0, prepare=True, wait_for_kv=True),
    ]


def test_a_placement_that_nothing_needs_any_more_starts_nothing(outputs: Outputs) -> None:
    assert decide(outputs([A]), decode(), placement=placement()) == []


def test_every_worker_that_failed_is_excluded(outputs: Outputs) -> None:
    failed = [lost(prefill("p0")), lost(decode(0, "d0")), lost(decode(0, "d1"))]
    assert decide(outputs([A]), failed=failed, placements=2) == [
        Place(frozenset({"p0", "d0", "d1"}))
    ]


def test_after_the_last_placement_the_latest_error_ends_the_request(outputs: Outputs) -> None:
    failed = [lost(decode()), lost(decode(), Reason.NO_CAPACITY)]
    (action,) = decide(outputs([A]), failed=failed, placements=MAX_PLACEMENTS)
    assert isinstance(action, Fail)
    assert action.error is failed[-1].error
    assert decide(outputs([A]), decode(), failed=failed, placements=MAX_PLACEMENTS) == []


def test_a_stream_that_ends_without_a_reason_is_placed_again_but_not_for_ever(
    outputs: Outputs,
) -> None:
    assert decide(outputs([A])) == [PLACE]
    (action,) = decide(outputs([A]), placements=MAX_PLACEMENTS)
    assert isinstance(action, Fail)
    assert action.error.reason is Reason.WORKER_LOST


@pytest.mark.parametrize("placements", [1, MAX_PLACEMENTS])
def test_an_error_of_the_request_itself_is_not_tried_elsewhere(
    outputs: Outputs, placements: int
) -> None:
    own = lost(decode(0), Reason.INTERNAL)
    for failed in ([own, lost(decode(1))], [lost(decode(1)), own]):
        assert decide(outputs([A], [A]), failed=failed, placements=placements) == [Fail(own.error)]
    own = lost(prefill(), Reason.INTERNAL)
    assert decide(outputs([]), prepared(), failed=[own]) == [Fail(own.error)]


def test_an_error_of_a_stream_that_is_not_missed_does_not_end_the_request(
    outputs: Outputs,
) -> None:
    failed = [lost(prefill("p0"), Reason.INTERNAL)]
    assert decide(outputs([A]), decode(), failed=failed) == []
    failed.append(lost(decode(0, "d0")))
    assert decide(outputs([A]), failed=failed) == [Place(frozenset({"p0", "d0"}))]
    ended = lost(decode(1, "d0"), Reason.INTERNAL)
    assert decide(outputs([A], None), decode(), failed=[ended]) == []


def test_a_choice_that_ended_elsewhere_releases_its_decode_stream(outputs: Outputs) -> None:
    waits, runs = prepared(0), decode(1)  # prefill gave the only token; a stop string
    assert decide(outputs(None, None, [A]), waits, runs, decode(2)) == [
        Release(waits),
        Release(runs),
    ]


def test_a_stream_that_ends_by_itself_is_given_time_to_report(outputs: Outputs) -> None:
    last = ending()
    assert decide(outputs(None, [A]), last, decode(1)) == []
    assert decide(outputs(None), last) == [AwaitReports()]
    assert decide(outputs(None), prefill()) == [AwaitReports()]
    assert decide(outputs(None), last, late=True) == [Finish()]
    assert decide(outputs(None)) == [Finish()]


def test_it_finishes_at_once_where_nothing_is_left_to_report(outputs: Outputs) -> None:
    runs = decode()
    assert decide(outputs(None), runs) == [Release(runs), Finish()]
    assert decide(outputs(None, None), runs, ending(1)) == [Release(runs), AwaitReports()]
