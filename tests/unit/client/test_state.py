"""What a streaming call decides, without a network."""

import grpc
import pytest

from baton.client import (
    ApiError,
    BatonClientError,
    CapacityError,
    ChoiceFinished,
    ConnectionFailedError,
    Delta,
    Event,
    Finished,
    FinishReason,
    PromptLogprobs,
    ProtocolError,
    Started,
    TokenLogprob,
    Usage,
)
from baton.client.call import CallDefaults
from baton.client.errors import api_error
from baton.client.requests import Options
from baton.client.retry import RetryPolicy
from baton.client.state import StreamState
from baton.errors import BatonError, Reason

LOST = ConnectionFailedError("connection reset", "r1")


def failure(reason: Reason, retry_after: float | None = None) -> ApiError:
    return api_error(BatonError(reason, "no", retry_after=retry_after), "r1")


def begin(now: float = 0.0, retries: int = 2, **options: object) -> StreamState:
    calls = CallDefaults(timeout=60.0, policy=RetryPolicy(retries))
    wanted: Options = {"request_id": "r1", **options}  # type: ignore[typeddict-item]
    return calls.generate("once", "tiny", wanted, now)


def started(seed: int = 7) -> Event:
    return Started("r1", "tiny", seed, 3)


def delta(position: int, *token_ids: int, text: str = "", choice: int = 0) -> Event:
    return Delta(choice, position, token_ids, text, ())


def choice_finished(choice: int = 0, reason: FinishReason = FinishReason.LENGTH) -> Event:
    return ChoiceFinished(choice, reason, "")


def finished() -> Event:
    return Finished(Usage(3, 0, 0, 2, 0.0, 0.0), ())


def test_events_become_a_whole_answer() -> None:
    state = begin(n=2)
    for response in (
        started(),
        delta(0, 5, text="a"),
        delta(0, 6, text="x", choice=1),
        delta(1, 8, text="b"),
        choice_finished(1, FinishReason.STOP),
        choice_finished(0),
        finished(),
    ):
        assert state.receive(response) is not None
    state.ended()
    answer = state.answer()
    assert [choice.text for choice in answer.choices] == ["ab", "x"]
    assert [choice.token_ids for choice in answer.choices] == [(5, 8), (6,)]
    assert [choice.reason for choice in answer.choices] == [FinishReason.LENGTH, FinishReason.STOP]
    assert answer.usage.output_tokens == 2
    assert (answer.text, answer.seed, answer.request_id) == ("ab", 7, "r1")


def prompt_logprobs(position: int, *values: float) -> Event:
    return PromptLogprobs(position, [TokenLogprob(value, ()) for value in values])


def test_log_probabilities_of_a_prompt_come_once_though_it_is_read_again() -> None:
    state = begin(prompt_logprobs=0, resume=True)
    assert state.receive(started()) == started()
    assert state.receive(prompt_logprobs(1, -1.0)) == prompt_logprobs(1, -1.0)
    state.failed(LOST, 1.0, 0.5)
    assert state.receive(started()) is None
    assert state.receive(prompt_logprobs(1, -1.0)) is None
    assert state.receive(prompt_logprobs(1, -1.0, -2.0)) == prompt_logprobs(2, -2.0)
    assert state.receive(prompt_logprobs(3, -3.0)) == prompt_logprobs(3, -3.0)
    for event in (delta(0, 5, text="a"), choice_finished(), finished()):
        assert state.receive(event) is not None
    assert [one.logprob for one in state.answer().prompt_logprobs] == [-1.0, -2.0, -3.0]


@pytest.mark.parametrize(
    ("responses", "wrong"),
    [
        ([], prompt_logprobs(1, -1.0)),
        ([started()], prompt_logprobs(2, -1.0)),
        ([], delta(0, 1)),
        ([started()], delta(1, 1)),
        ([started(), delta(0, 1, 2)], delta(1, 2)),
        ([started()], delta(0, 1, choice=1)),
        ([started(), delta(0, 1), choice_finished()], delta(1, 2)),
        ([started(), delta(0, 1), choice_finished()], choice_finished()),
        ([started(), delta(0, 1)], finished()),
    ],
    ids=[
        "prompt unstarted",
        "prompt gap",
        "unstarted",
        "gap",
        "twice",
        "no such choice",
        "after end",
        "ends twice",
        "early finish",
    ],
)
def test_events_out_of_contract_are_refused(responses: list[Event], wrong: Event) -> None:
    state = begin()
    for response in responses:
        state.receive(response)
    with pytest.raises(ProtocolError):
        state.receive(wrong)


def test_a_stream_that_ends_without_finished_is_an_error() -> None:
    state = begin()
    state.receive(started())
    with pytest.raises(ProtocolError):
        state.ended()


@pytest.mark.parametrize(
    "error", [LOST, failure(Reason.OVERLOADED), failure(Reason.DRAINING), failure(Reason.NO_WORKER)]
)
def test_unavailable_before_anything_came_is_tried_again(error: BatonClientError) -> None:
    state = begin()
    assert state.failed(error, now=1.0, jitter=0.5) > 0
    request, timeout = state.attempt(now=2.0)
    assert request.context.request_id == "r1"
    assert timeout == 58.0


def test_attempts_of_a_call_are_one_execution_and_calls_of_one_name_are_several() -> None:
    state = begin()
    first, _ = state.attempt(now=0.0)
    state.failed(LOST, now=1.0, jitter=0.5)
    again, _ = state.attempt(now=2.0)
    assert again.context.execution_id == first.context.execution_id != ""
    assert (first.context.attempt, again.context.attempt) == (0, 1)
    assert begin().attempt(now=0.0)[0].context.execution_id != first.context.execution_id
    named, _ = begin(execution_id="mine").attempt(now=0.0)
    assert named.context.execution_id == "mine"


def test_no_capacity_is_tried_again_only_when_told_when() -> None:
    wait = begin().failed(failure(Reason.NO_CAPACITY, retry_after=3.0), now=0.0, jitter=0.0)
    assert wait >= 3.0
    with pytest.raises(CapacityError):
        begin().failed(failure(Reason.NO_CAPACITY), now=0.0, jitter=0.0)


@pytest.mark.parametrize(
    "reason", [Reason.INVALID_FIELD, Reason.MODEL_NOT_FOUND, Reason.INTERNAL, Reason.DEADLINE]
)
def test_other_errors_are_not_tried_again(reason: Reason) -> None:
    with pytest.raises(ApiError) as caught:
        begin().failed(failure(reason), now=0.0, jitter=0.0)
    assert caught.value.reason == reason.name


def test_attempts_are_bounded_and_back_off() -> None:
    state = begin(retries=2)
    waits = [state.failed(LOST, now=0.0, jitter=1.0) for _ in range(2)]
    assert waits[1] == 2 * waits[0]
    with pytest.raises(ConnectionFailedError):
        state.failed(LOST, now=0.0, jitter=1.0)


def test_a_wait_that_reaches_the_deadline_is_not_begun() -> None:
    with pytest.raises(ApiError):
        begin().failed(failure(Reason.OVERLOADED, retry_after=61.0), now=0.0, jitter=0.0)


def test_after_the_first_event_nothing_is_repeated_unless_asked() -> None:
    state = begin()
    state.receive(started())
    with pytest.raises(ConnectionFailedError):
        state.failed(LOST, now=0.0, jitter=0.0)


def test_a_lost_stream_resumes_after_what_was_received() -> None:
    state = begin(resume=True, temperature=0.5)
    for response in (started(seed=99), delta(0, 5, 6, text="ab")):
        state.receive(response)
    state.failed(LOST, now=1.0, jitter=0.0)
    request, _ = state.attempt(now=1.0)
    assert list(request.resume.output_ids) == [5, 6]
    assert request.resume.seed == 99
    assert request.sampling.temperature == 0.5
    assert state.receive(started(seed=99)) is None  # the user has seen Started
    event = state.receive(delta(2, 7, text="c"))
    assert isinstance(event, Delta)
    assert state.text() == "abc"
    assert state.token_ids() == (5, 6, 7)


def test_a_stream_that_can_go_on_is_tried_for_a_time_not_for_a_number_of_attempts() -> None:
    state = begin(retries=1, resume=True)
    state.attempt(now=0.0)
    state.receive(started())
    state.receive(delta(0, 5))
    waits = [state.failed(LOST, now=float(now), jitter=1.0) for now in range(20)]
    assert waits[:5] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0])
    assert waits[-1] == 1.0
    state.receive(delta(1, 6))  # it went on
    assert state.failed(LOST, now=21.0, jitter=1.0) == pytest.approx(0.1)
    assert state.failed(LOST, now=50.9, jitter=1.0) == pytest.approx(0.2)
    with pytest.raises(ConnectionFailedError):
        state.failed(LOST, now=51.0, jitter=1.0)
    once = begin(retries=0, resume=True)
    once.receive(started())
    with pytest.raises(ConnectionFailedError):
        once.failed(LOST, now=0.0, jitter=1.0)


def test_a_stream_lost_before_its_last_event_asks_for_that_alone() -> None:
    state = begin(resume=True)
    for response in (started(), delta(0, 5, 6, text="ab"), choice_finished(0)):
        state.receive(response)
    state.failed(LOST, now=1.0, jitter=0.0)
    request, _ = state.attempt(now=1.0)
    assert list(request.resume.output_ids) == [5, 6]
    assert state.receive(started()) is None
    assert state.receive(choice_finished(0)) is None  # the user has seen it
    assert isinstance(state.receive(finished()), Finished)
    assert state.answer().text == "ab"


def test_a_stream_lost_before_its_first_token_starts_again_with_its_seed() -> None:
    state = begin(resume=True)
    event = state.receive(started(seed=99))
    assert isinstance(event, Started)
    state.failed(LOST, now=1.0, jitter=0.0)
    request, _ = state.attempt(now=1.0)
    assert not request.HasField("resume")
    assert request.sampling.seed == 99


def test_a_lost_stream_without_exact_continuation_is_resumed_only_before_its_first_token() -> None:
    first = Started("r1", "tiny", 99, 3, exact_continuation=False)
    state = begin(resume=True)
    state.receive(first)
    state.failed(LOST, now=1.0, jitter=0.0)
    request, _ = state.attempt(now=1.0)
    assert request.sampling.seed == 99
    state.receive(delta(0, 5))
    with pytest.raises(ConnectionFailedError):
        state.failed(LOST, now=1.0, jitter=0.0)


def test_a_stream_that_the_cluster_gave_up_is_not_resumed() -> None:
    state = begin(resume=True)
    state.receive(started())
    with pytest.raises(ApiError) as caught:
        state.failed(failure(Reason.WORKER_LOST), now=0.0, jitter=0.0)
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE


def test_resume_needs_one_choice() -> None:
    with pytest.raises(ValueError, match="n=1"):
        begin(resume=True, n=2)


def test_retries_must_not_be_negative_and_timeouts_must_be_positive() -> None:
    with pytest.raises(ValueError, match="retries"):
        RetryPolicy(-1)
    with pytest.raises(ValueError, match="timeout"):
        begin(timeout=0.0)
