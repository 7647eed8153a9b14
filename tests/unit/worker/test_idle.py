"""Idle KV leaves the engine only where the store has it, and only where it is found again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from baton.engine.events import CachedBlock
from baton.kv.cuts import CutRules
from baton.kv.layout import GroupKind, KvGroup
from baton.worker.kv.idle import evictable_keys
from baton.worker.kv.idle_cuts import found_in_store
from tests.support.examples import examples
from tests.unit.router.test_cut_match import rules_of_layouts


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


@settings(max_examples=examples(80))
@given(data=st.data())
def test_with_groups_a_chain_leaves_if_the_store_has_the_cut_at_its_end(
    data: st.DataObject,
) -> None:
    rules = data.draw(rules_of_layouts())
    count = data.draw(st.integers(1, 8))
    parents = [data.draw(st.integers(-1, number - 1)) for number in range(count)]
    lines = [[*sorted(_ancestors(number, parents)), number] for number in range(count)]
    held: list[set[bytes]] = [set() for _ in rules.groups]
    for number in data.draw(st.lists(st.integers(0, count - 1), max_size=3)):
        for group, blocks in enumerate(rules.needed(len(lines[number]) * rules.block_tokens)):
            held[group] |= {key(lines[number][block]) for block in blocks}
    for group, number in data.draw(
        st.lists(st.tuples(st.integers(0, len(held) - 1), st.integers(0, count - 1)), max_size=2)
    ):
        held[group].discard(key(number))
    idle = [
        CachedBlock(key(n), key(parents[n]) if parents[n] >= 0 else b"")
        for n in reversed(range(count))
    ]
    leaving = set(evictable_keys(idle, found_in_store(idle, held, rules)))

    def in_store(number: int) -> bool:
        line = lines[number]

        def has(group: int, block: int) -> bool:
            return key(line[block]) in held[group]

        most = len(line) * rules.block_tokens
        return rules.longest(has, most) == most

    for n in set(range(count)) - set(parents):
        assert (key(n) in leaving) == in_store(n)
    # What stays can be continued from: all that it continues stays, too.
    assert all(key(n) in leaving or key(m) not in leaving for n in range(count) for m in lines[n])


def test_a_window_that_reaches_behind_the_idle_blocks_keeps_them_here() -> None:
    idle = [CachedBlock(key(n), key(n - 1)) for n in (9, 8)]  # a sequence holds those before
    held = {key(8), key(9)}
    for kind, span, leaves in [("window", 33, True), ("window", 34, False), ("state", 0, True)]:
        groups = (KvGroup(GroupKind.FULL, 1), KvGroup(GroupKind(kind), 1, span))
        found = found_in_store(idle, [held, held], CutRules(groups, 16))
        assert (key(9) in found) == leaves
    groups = (KvGroup(GroupKind.FULL, 1), KvGroup(GroupKind.CHUNK, 1, 32))
    assert key(9) not in found_in_store(idle, [held, held], CutRules(groups, 16))


def _ancestors(number: int, parents: list[int]) -> set[int]:
    found = set()
    while parents[number] >= 0:
        number = parents[number]
        found.add(number)
    return found
