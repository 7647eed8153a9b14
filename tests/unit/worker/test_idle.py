"""Idle KV leaves the engine only where the store has it, and only where it is found again."""

from hypothesis import given
from hypothesis import strategies as st

from baton.engine.events import CachedBlock
from baton.worker.kv.idle import evictable_keys


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


@given(data=st.data())
def test_a_prefix_is_found_as_far_as_before(data: st.DataObject) -> None:
    # A tree of blocks: each continues an earlier one, or begins a chain.
    count = data.draw(st.integers(0, 12))
    parents = [data.draw(st.integers(-1, number - 1)) for number in range(count)]
    held = {key(n) for n in data.draw(st.sets(st.integers(0, max(0, count - 1))))}
    idle = [
        CachedBlock(key(n), key(parents[n]) if parents[n] >= 0 else b"")
        for n in reversed(range(count))
    ]
    leaving = set(evictable_keys(idle, held))
    assert leaving <= held

    def found(number: int, here: set[bytes]) -> bool:
        """Whether the chain up to this block is to be had: from here first, then the store."""
        chain = [number]
        while parents[chain[-1]] >= 0:
            chain.append(parents[chain[-1]])
        keys = [key(each) for each in reversed(chain)]
        while keys and keys[0] in here:
            keys.pop(0)
        return all(each in held for each in keys)

    everything = {key(n) for n in range(count)}
    assert all(found(n, everything) for n in range(count))
    assert all(found(n, everything - leaving) for n in range(count))
    # And nothing stays for no reason: what the store holds with all that continues it leaves.
    for n in range(count):
        line = [m for m in range(count) if n in _ancestors(m, parents)]
        assert (key(n) in leaving) == all(key(m) in held for m in (n, *line))


def _ancestors(number: int, parents: list[int]) -> set[int]:
    found = set()
    while parents[number] >= 0:
        number = parents[number]
        found.add(number)
    return found
