"""Wants: leased at commit, paced, answered exactly once, and never in vain for ever."""

from services.kvstore.reads.read_request import ReadSource
from tests.unit.kvstore.conftest import World, make_world, object_id


def test_what_is_there_is_leased_at_once_and_in_one_batch(world: World) -> None:
    for number in range(3):
        world.put(number)
    reader, _ = world.read(0, 1, 2, 3)
    assert reader.batches == [[0, 1, 2]]
    assert not reader.done
    assert world.table.stats().leases == 3


def test_waiting_holds_nothing_and_the_commit_leases(world: World) -> None:
    reader, _ = world.read(0, 1)
    assert world.table.stats().pinned_bytes == 0
    world.put(1)
    assert set(reader.ready) == {1}
    world.put(0)
    assert set(reader.ready) == {0, 1}
    assert reader.done == 1
    for lease in reader.ready.values():
        world.release(lease)
    world.assert_nothing_held()


def test_every_waiter_of_an_object_gets_it(world: World) -> None:
    readers = [world.read(7)[0] for _ in range(20)]
    world.put(7)
    assert all(reader.done == 1 for reader in readers)
    assert world.table.stats().leases == 20
    assert world.table.stats().pinned_bytes == 4096  # one slot, however many leases


def test_a_key_asked_for_twice_in_one_read_is_answered_twice(world: World) -> None:
    reader, _ = world.read(1, 1)
    world.put(1)
    assert set(reader.ready) == {0, 1}
    assert reader.done == 1


def test_a_read_holds_no_more_than_its_window() -> None:
    world = make_world(64, window=2 * 4096)
    for number in range(6):
        world.put(number)
    reader, _ = world.read(*range(6))
    other, _ = world.read(*range(6))
    assert set(reader.ready) == set(other.ready) == {0, 1}
    world.release(reader.ready[0])
    assert set(reader.ready) == {0, 1, 2}
    assert set(other.ready) == {0, 1}


def test_the_window_always_lets_one_object_through() -> None:
    world = make_world(64, window=1)
    reader, _ = world.read(0, 1)
    world.put(0)
    world.put(1)
    assert set(reader.ready) == {0}
    world.release(reader.ready[0])
    assert set(reader.ready) == {0, 1}


def test_lapsed_leases_make_room_for_the_next(world: World) -> None:
    world = make_world(4)  # two pages may be held
    for number in range(3):
        world.put(number)
    slow, _ = world.read(0, 1)
    starved, _ = world.read(2, wait=30.0)
    assert not starved.ready
    world.pass_time(10.0)
    assert len(slow.lost) == 2
    assert set(starved.ready) == {0}


def test_an_object_that_goes_before_its_lease_is_waited_for_again() -> None:
    world = make_world(8, window=1)
    world.put(0)
    world.put(1)
    reader, _ = world.read(0, 1)
    for number in range(2, 10):  # evicts object 1, which is there and not leased yet
        world.put(number)
    world.release(reader.ready[0])
    assert set(reader.ready) == {0}
    world.put(1)
    assert set(reader.ready) == {0, 1}
    assert reader.done == 1


class TestWillNotCome:
    def test_a_local_writer_decides_where_there_are_no_sources(self, world: World) -> None:
        reader, _ = world.read(0, 1)
        world.mark_unavailable(0)
        assert reader.will_not_come == {0}
        assert not reader.done

    def test_said_just_before_the_read_it_counts_and_is_then_forgotten(self, world: World) -> None:
        world.mark_unavailable(0)
        world.pass_time(2.9)
        assert world.read(0)[0].will_not_come == {0}
        world.pass_time(0.2)
        assert not world.read(0)[0].will_not_come

    def test_a_new_writer_makes_it_void(self, world: World) -> None:
        world.mark_unavailable(0)
        slot = world.reserve(0)
        assert slot is not None
        reader, _ = world.read(0)
        assert not reader.will_not_come
        world.commit(slot)
        assert set(reader.ready) == {0}

    def test_another_writer_that_is_at_it_keeps_the_read_waiting(self, world: World) -> None:
        slot = world.reserve(0)
        assert slot is not None
        reader, _ = world.read(0)
        world.mark_unavailable(0)
        assert not reader.will_not_come
        world.table.reservations.abandon(slot)
        world.waits.fail_if_unavailable(object_id(0), world.now)
        world.waits.flush(world.now)
        assert reader.will_not_come == {0}

    def test_every_source_must_say_so(self, world: World) -> None:
        reader, request = world.read(0, sources=("a", "b"))
        for name in ("a", "b"):
            assert not reader.will_not_come
            world.waits.mark_unavailable_at(
                request, object_id(0), ReadSource(name, f"{name}:1"), world.now
            )
            world.waits.flush(world.now)
        assert reader.will_not_come == {0}
        assert reader.done == 1

    def test_with_this_store_among_the_sources_its_writers_must_too(self, world: World) -> None:
        reader, request = world.read(0, sources=("a", "me"))
        world.waits.mark_unavailable_at(request, object_id(0), ReadSource("a", "a:1"), world.now)
        world.waits.flush(world.now)
        assert not reader.will_not_come
        world.mark_unavailable(0)
        assert reader.will_not_come == {0}

    def test_local_denial_does_not_speak_for_a_source(self, world: World) -> None:
        reader, _ = world.read(0, sources=("a",))
        world.mark_unavailable(0)
        assert not reader.will_not_come

    def test_replacing_the_sources_asks_anew(self, world: World) -> None:
        reader, request = world.read(0, sources=("a", "b"))
        world.waits.mark_unavailable_at(request, object_id(0), ReadSource("a", "a:1"), world.now)
        world.waits.replace_sources(request, [ReadSource("c", "c:1")], "me", world.now)
        world.waits.mark_unavailable_at(request, object_id(0), ReadSource("b", "b:1"), world.now)
        world.waits.flush(world.now)
        assert not reader.will_not_come
        world.waits.mark_unavailable_at(request, object_id(0), ReadSource("c", "c:1"), world.now)
        world.waits.flush(world.now)
        assert reader.will_not_come == {0}


def test_a_wait_ends_at_its_deadline_exactly_once(world: World) -> None:
    reader, _ = world.read(0, 1, wait=2.0)
    world.put(1)
    world.pass_time(1.9)
    assert not reader.timed_out
    world.pass_time(0.2)
    assert reader.timed_out == {0}
    assert reader.done == 1
    world.put(0)  # too late for it
    assert set(reader.ready) == {1}


def test_what_is_here_is_leased_as_room_comes_also_after_the_deadline() -> None:
    world = make_world(64, window=1)
    for number in range(3):
        world.put(number)
    reader, _ = world.read(0, 1, 2, 3, wait=1.0)
    world.pass_time(2.0)
    assert (set(reader.ready), reader.timed_out) == ({0}, {3})
    world.release(reader.ready[0])
    world.release(reader.ready[1])
    assert set(reader.ready) == {0, 1, 2}
    assert reader.done == 1


def test_what_goes_after_the_deadline_is_not_waited_for() -> None:
    world = make_world(8, window=1)
    world.put(0)
    world.put(1)
    reader, _ = world.read(0, 1, wait=1.0)
    for number in range(2, 10):
        world.put(number)
    world.pass_time(2.0)
    world.release(reader.ready[0])
    assert reader.timed_out == {1}
    assert reader.done == 1


def test_without_a_wait_and_sources_the_answer_is_immediate(world: World) -> None:
    world.put(0)
    reader, _ = world.read(0, 1, wait=0)
    assert set(reader.ready) == {0}
    assert reader.timed_out == {1}
    assert reader.done == 1


def test_a_read_without_a_wait_goes_on_while_objects_come(world: World) -> None:
    reader, request = world.read(*range(6), wait=0, sources=("a",))
    request.grace_seconds, request.last_deadline = 5.0, 16.05
    for number in range(4):
        world.pass_time(4.0)  # 16 s in all, and never 5 without an object
        assert not reader.timed_out
        world.put(number)
    world.pass_time(0.1)
    assert (set(reader.ready), reader.timed_out) == ({0, 1, 2, 3}, {4, 5})
    assert reader.done == 1


def test_a_read_without_a_wait_ends_when_nothing_comes(world: World) -> None:
    reader, request = world.read(0, 1, 2, wait=0, sources=("a",))
    request.grace_seconds, request.last_deadline = 5.0, 60.0
    world.pass_time(3.0)
    world.put(0)
    world.pass_time(4.9)
    assert not reader.timed_out
    world.pass_time(0.2)
    assert (set(reader.ready), reader.timed_out) == ({0}, {1, 2})
    world.release(reader.ready[0])
    world.assert_nothing_held()


def test_without_a_wait_the_sources_are_asked_once(world: World) -> None:
    reader, request = world.read(0, wait=0, sources=("a",))
    assert not reader.done
    world.waits.mark_unavailable_at(request, object_id(0), ReadSource("a", "a:1"), world.now)
    world.waits.flush(world.now)
    assert reader.timed_out == {0}


def test_cancelling_gives_everything_back(world: World) -> None:
    world.put(0)
    reader, request = world.read(0, 1, 2)
    world.waits.cancel(request)
    world.put(1)
    assert set(reader.ready) == {0}
    world.assert_nothing_held()


def test_a_bad_object_is_dropped_and_computed_anew(world: World) -> None:
    world.put(0)
    reader, _ = world.read(0)
    world.release(reader.ready[0], bad=True)
    assert world.table.stats().bad_objects == 1
    again, _ = world.read(0)
    assert not again.ready
    world.put(0)
    assert set(again.ready) == {0}


def test_ended_reads_do_not_pile_up_until_their_deadlines(world: World) -> None:
    for _ in range(1000):
        _, request = world.read(1, wait=3600)
        world.waits.cancel(request)
    assert len(world.waits._timeouts._heap) < 100
