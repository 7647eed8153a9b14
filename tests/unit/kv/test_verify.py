"""Which copies of KV are checked, and against what."""

import random
from itertools import pairwise

import pytest

from baton.kv.client.fetched_object import STRIDE_BYTES, FetchedObject
from baton.kv.digest import start_digest
from baton.kv.objects import ObjectId

DATA = random.Random(1).randbytes(2 * STRIDE_BYTES + 77)
OBJECT = ObjectId(b"l" * 16, b"k" * 16)


def fetched(data: bytes, *, trusted: bool = False, generation: int = 4, cuts=()) -> FetchedObject:
    digest = start_digest(OBJECT, len(DATA))
    digest.update(DATA)
    ends = [0, *cuts, len(data)]
    pieces = [memoryview(data)[a:b] for a, b in pairwise(ends)]
    expected = None if trusted else digest.digest()
    return FetchedObject(0, pieces, len(data), OBJECT, expected, 1, (generation,), 0, 4)


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("cuts", [(), (1,), (5, 5, 300_000), (STRIDE_BYTES,)])
def test_a_right_copy_is_good_however_it_came(trusted, cuts):
    target = bytearray(len(DATA))
    found = fetched(DATA, trusted=trusted, cuts=cuts)
    assert found.copy_to(memoryview(target))
    assert target == DATA
    assert not found.bad


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("at", [0, STRIDE_BYTES - 1, STRIDE_BYTES, len(DATA) - 1])
def test_a_flipped_bit_is_noticed_unless_copies_are_trusted(trusted, at):
    flipped = bytearray(DATA)
    flipped[at] ^= 1
    found = fetched(bytes(flipped), trusted=trusted)
    assert found.copy_to(memoryview(bytearray(len(DATA)))) is trusted
    assert found.bad is not trusted


@pytest.mark.parametrize("trusted", [False, True])
def test_a_slot_that_was_given_to_another_object_is_noticed_always(trusted):
    found = fetched(DATA, trusted=trusted, generation=6)
    assert not found.copy_to(memoryview(bytearray(len(DATA))))


def test_a_target_of_another_length_is_refused():
    with pytest.raises(ValueError, match="too small for"):
        fetched(DATA).copy_to(memoryview(bytearray(5)))
