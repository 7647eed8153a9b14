"""What is held of bodies on their way is bounded, and the oldest pays for it."""

from baton.errors import BatonError, Reason
from baton.rpc.transport.unfinished import Unfinished


class Body:
    """Holds bytes, and is given up once."""

    def __init__(self, unfinished: Unfinished) -> None:
        self._unfinished = unfinished
        self.errors: list[BatonError] = []

    def has(self, size: int) -> None:
        self._unfinished.note(self, size)

    def give_up(self, error: BatonError) -> None:
        self.errors.append(error)
        self.has(0)


def test_the_oldest_is_given_up_until_the_others_have_room() -> None:
    unfinished = Unfinished(100)
    first, second, third = (Body(unfinished) for _ in range(3))
    first.has(30)
    second.has(40)
    first.has(60)  # it is older all the same
    assert not first.errors + second.errors
    third.has(10)
    assert [error.reason for error in first.errors] == [Reason.OVERLOADED]
    third.has(61)
    assert (len(second.errors), third.errors) == (1, [])
    third.has(100)
    assert not third.errors
    third.has(101)
    assert len(third.errors) == 1


def test_what_is_whole_makes_room() -> None:
    unfinished = Unfinished(100)
    first, second = Body(unfinished), Body(unfinished)
    for _ in range(5):
        first.has(90)
        first.has(0)
        first.has(0)
        second.has(100)
        second.has(0)
    assert not first.errors + second.errors


def test_without_a_bound_nothing_is_given_up() -> None:
    body = Body(Unfinished(0))
    body.has(1 << 50)
    assert not body.errors
