"""What waits at a worker is known from what was placed, and from how much is left."""

from services.router.admission.worker_lines import WorkerLines
from services.router.policy.costs import PromptTurn


def lines() -> WorkerLines:
    made = WorkerLines()
    for key, seconds in ((3.0, 4.0), (1.0, 1.0), (2.0, 2.0)):
        made.add("a", key, seconds)
    return made


def test_a_turn_comes_before_those_with_higher_keys() -> None:
    made = lines()
    assert made.turn("a", 0.5, 0.0) == PromptTurn(-7.0, 3)
    assert made.turn("a", 2.0, 0.5) == PromptTurn(-3.5, 1)
    assert made.turn("a", 9.0, 0.0) == PromptTurn()
    assert made.turn("b", 0.0, 1.5) == PromptTurn(1.5, 0)


def test_what_has_begun_is_overtaken_no_more() -> None:
    made = lines()
    made.observe({"a": 7.0})
    assert len(made) == 3, "nothing was computed yet"
    made.observe({"a": 6.5})
    assert made.turn("a", 0.0, 0.0) == PromptTurn(-6.0, 2)
    # More is left than waits: something that goes first was placed there.
    made.observe({"a": 8.0})
    assert len(made) == 2
    made.observe({"a": 3.0})
    assert len(made) == 0
    assert made.workers() == []


def test_a_worker_that_left_is_forgotten() -> None:
    made = lines()
    made.add("b", 1.0, 1.0)
    made.observe({"b": 1.0})
    assert made.workers() == ["b"]
