"""Which models' workers are up: turns on plain values."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from baton.on_demand.state import ModelState, ModelTurn
from baton.on_demand.turns import ModelUse, OnDemandTurns, TurnChanges, TurnPhase
from tests.support.examples import examples

RUNNING = ModelUse(running=True)
STAY = 30.0


def turns_of(*up: str, away: str = "bc", room: int = 1) -> OnDemandTurns:
    turns = OnDemandTurns(room, STAY)
    for model in up:
        turns.add(model, TurnPhase.READY, 0.0)
    for model in away:
        turns.add(model, TurnPhase.AWAY, 0.0)
    return turns


def waiting(since: float) -> ModelUse:
    return ModelUse(since)


def give_room(turns: OnDemandTurns, uses: Mapping[str, ModelUse], now: float) -> TurnChanges:
    """The change that follows once a closed model's workers have ended."""
    stopped = turns.decide(uses, now).stop
    for model in stopped:
        turns.stopped(model, now)
    return turns.decide(uses, now)


def test_an_idle_model_gives_its_room_after_its_stay() -> None:
    turns = turns_of("a")
    assert turns.decide({"b": waiting(1.0)}, 1.0) == TurnChanges()
    assert turns.decide({"b": waiting(1.0)}, 29.9) == TurnChanges()
    assert turns.decide({"b": waiting(1.0)}, 30.0) == TurnChanges(close=("a",))
    assert turns.decide({"b": waiting(1.0)}, 30.5) == TurnChanges(stop=("a",))
    assert turns.decide({"b": waiting(1.0)}, 31.0) == TurnChanges()
    turns.stopped("a", 31.0)
    assert turns.decide({"b": waiting(1.0)}, 31.0) == TurnChanges(start=("b",))
    turns.started("b", 36.0)
    assert turns.phase("b") is TurnPhase.READY


def test_without_requests_nothing_changes() -> None:
    turns = turns_of("a")
    assert turns.decide({}, 1e6) == TurnChanges()


def test_free_room_is_used_at_once() -> None:
    turns = turns_of(away="abc", room=2)
    uses = {"a": waiting(0.3), "b": waiting(0.1), "c": waiting(0.2)}
    assert turns.decide(uses, 1.0) == TurnChanges(start=("b", "c"))


def test_a_model_in_use_stays_until_another_has_waited_for_two_stays() -> None:
    turns = turns_of("a")
    uses = {"a": RUNNING, "b": waiting(40.0)}
    assert turns.decide(uses, 99.0) == TurnChanges()
    assert turns.decide(uses, 100.0) == TurnChanges(close=("a",))
    assert turns.decide(uses, 160.0) == TurnChanges(), "what runs ends first"
    assert turns.decide({"b": waiting(40.0)}, 170.0) == TurnChanges(stop=("a",))


def test_the_model_used_longest_ago_goes() -> None:
    turns = turns_of("a", "b", away="c", room=2)
    turns.decide({"b": RUNNING}, 50.0)
    turns.decide({"a": RUNNING}, 60.0)
    assert turns.decide({"c": waiting(61.0)}, 61.0).close == ("b",)


def test_one_that_waits_closes_one_model() -> None:
    turns = turns_of("a", "b", away="cd", room=2)
    uses = {"c": waiting(70.0)}
    assert turns.decide(uses, 70.0).close == ("a",)
    assert turns.decide(uses, 70.5) == TurnChanges(stop=("a",))
    assert turns.decide(uses, 71.0) == TurnChanges()
    both = uses | {"d": waiting(71.0)}
    assert turns.decide(both, 71.0).close == ("b",)


def test_a_closed_model_opens_again_if_none_waits_for_its_room() -> None:
    turns = turns_of("a")
    turns.decide({"a": RUNNING, "b": waiting(0.0)}, 90.0)
    assert turns.phase("a") is TurnPhase.CLOSING
    assert turns.decide({"a": RUNNING}, 91.0) == TurnChanges(reopen=("a",))
    assert turns.phase("a") is TurnPhase.READY


def test_a_closed_model_waits_for_its_next_turn_like_others() -> None:
    turns = turns_of("a")
    uses = {"b": waiting(0.0)}
    turns.decide(uses, 90.0)
    uses["a"] = waiting(90.5)
    assert give_room(turns, uses, 91.0) == TurnChanges(start=("b",))


def test_a_model_that_did_not_start_rests_and_others_go_first() -> None:
    turns = turns_of(away="ab")
    uses = {"a": waiting(0.0), "b": waiting(1.0)}
    assert turns.decide(uses, 1.0).start == ("a",)
    turns.failed("a", 2.0)
    assert turns.decide(uses, 2.0).start == ("b",)
    turns.failed("b", 3.0)
    assert turns.decide(uses, 3.0) == TurnChanges()
    assert turns.decide(uses, 32.0).start == ("a",)


def test_start_up_is_predicted() -> None:
    turns = turns_of("a")
    assert turns.turn("a") == ModelTurn(ModelState.READY)
    assert turns.turn("b").ready_in(5.0) == 25.0 + 10.0
    uses = {"b": waiting(1.0)}
    turns.decide(uses, 30.0)
    assert turns.turn("a").state is ModelState.LEAVING
    assert give_room(turns, uses, 31.0).start == ("b",)
    assert turns.turn("b") == ModelTurn(ModelState.STARTING, 41.0)
    assert turns.turn("b").ready_in(32.0) == 9.0
    turns.started("b", 35.0)
    assert turns.turn("a").ready_in(35.0) == STAY + 10.0
    turns.decide({"a": waiting(36.0)}, 70.0)
    give_room(turns, {"a": waiting(36.0)}, 71.0)
    assert turns.turn("b").ready_in(71.0) == 10.0 + STAY + 4.0, "its last start took 4 s"


def test_the_turns_of_those_ahead_count() -> None:
    turns = turns_of("a", away="bcd")
    turns.decide({"b": waiting(1.0), "c": waiting(2.0)}, 5.0)
    assert turns.turn("b").ready_in(5.0) == 25.0 + 10.0
    assert turns.turn("c").ready_in(5.0) == 25.0 + (10.0 + STAY) + 10.0
    assert turns.turn("d").ready_in(5.0) == 25.0 + 2 * (10.0 + STAY) + 10.0
    free = turns_of("a", away="bcd", room=2)
    assert free.turn("b").ready_in(5.0) == 10.0


arrivals = st.lists(
    st.tuples(
        st.floats(0.0, 300.0),
        st.sampled_from("abcd"),
        st.floats(0.0, 40.0),  # seconds that it runs for
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=examples(25))
@given(arrivals, st.integers(1, 3), st.sampled_from([0.0, 10.0, STAY]))
def test_all_are_served_within_the_room_and_no_turn_ends_early(
    requests: list[tuple[float, str, float]], room: int, stay: float
) -> None:
    turns, now = OnDemandTurns(room, stay), 0.0
    for model in "abcd":
        turns.add(model, TurnPhase.AWAY, now)
    coming = sorted(requests)
    queued: dict[str, list[tuple[float, float]]] = {model: [] for model in "abcd"}
    ends: dict[str, list[float]] = {model: [] for model in "abcd"}
    began: dict[str, float] = {}
    served = 0
    while coming or any(queued.values()) or any(ends.values()):
        assert now < 10_000, "a request was never served"
        while coming and coming[0][0] <= now:
            at, model, seconds = coming.pop(0)
            queued[model].append((at, seconds))
        for model in "abcd":
            ends[model] = [end for end in ends[model] if end > now]
            if turns.phase(model) is TurnPhase.READY:
                served += len(queued[model])
                ends[model] += [now + seconds for _, seconds in queued[model]]
                queued[model] = []
        uses = {
            model: ModelUse(min(queued[model])[0] if queued[model] else None, bool(ends[model]))
            for model in "abcd"
        }
        changes = turns.decide(uses, now)
        assert sum(turns.phase(model) is not TurnPhase.AWAY for model in "abcd") <= room
        for model in changes.close:
            assert now - began[model] >= stay
            assert set(map(turns.phase, "abcd")) != {TurnPhase.READY}
        for model in changes.stop:
            assert not ends[model]
            turns.stopped(model, now)
        for model in changes.start:
            assert queued[model]
            began[model] = now
            turns.started(model, now)
        now += 1.0
    assert served == len(requests)
