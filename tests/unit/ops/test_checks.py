"""What /livez and /readyz say, without a server."""

from baton.ops.checks import Liveness, ProcessClock, Readiness


class Hand:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_part_is_stuck_when_it_is_at_one_thing_for_too_long():
    hand = Hand()
    clock = ProcessClock(hand)
    liveness = Liveness(stuck_seconds=2.0, clock=clock)
    began: float | None = None
    liveness.watch("engine", lambda: began)

    def after(seconds: float) -> str:
        for _ in range(int(seconds / 0.5)):
            hand.seconds += 0.5
            clock.tick()
        return dict(liveness.states())["engine"]

    assert after(10) == ""  # it does nothing
    began = clock.now()
    assert after(2) == ""
    assert after(1) == "stuck for 3 s"
    began = clock.now()
    assert after(1) == ""


def test_pause_of_the_whole_process_counts_for_nothing():
    hand = Hand()
    clock = ProcessClock(hand)
    liveness = Liveness(stuck_seconds=2.0, clock=clock)
    began = clock.now()
    liveness.watch("event-loop", lambda: began)
    hand.seconds += 3600  # nobody ticked
    assert liveness.states() == [("event-loop", "")]
    clock.tick()
    assert liveness.states() == [("event-loop", "")]
    assert clock.now() - began <= 0.5


def test_ready_once_nothing_is_waited_for():
    readiness = Readiness()
    told: list[bool] = []
    readiness.wait_for("engine", "the model is being loaded")
    readiness.follow(told.append)
    readiness.done("start")
    assert not readiness.ready
    assert readiness.states() == (("start", ""), ("engine", "the model is being loaded"))
    readiness.done("engine")
    assert readiness.ready
    readiness.wait_for("drain", "the process is stopping")
    readiness.done("engine")
    assert not readiness.ready
    assert told == [False, True, False]
