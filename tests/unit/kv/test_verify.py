"""Which copies of KV are checked against their digest."""

import pytest

from baton.kv.digest import start_digest
from baton.kv.fetching import Fetched
from baton.kv.objects import ObjectId
from baton.v1 import kvstore_pb2 as pb

DATA = b"what the store holds"
OBJECT = ObjectId(b"l" * 16, b"k" * 16)


def fetched(*, trusted: bool, generation: int = 4) -> Fetched:
    digest = start_digest(OBJECT, len(DATA))
    digest.update(DATA)
    ready = pb.ReadyObject(lease_id=1, generation=4, digest=digest.digest())
    return Fetched(0, memoryview(DATA), OBJECT, ready, lambda: generation, trusted)


@pytest.mark.parametrize("trusted", [False, True])
def test_a_right_copy_is_good(trusted):
    assert fetched(trusted=trusted).verify(memoryview(bytes(DATA)))


@pytest.mark.parametrize("trusted", [False, True])
def test_a_flipped_bit_is_noticed_unless_the_copy_is_trusted(trusted):
    flipped = memoryview(bytes([DATA[0] ^ 1]) + DATA[1:])
    found = fetched(trusted=trusted)
    assert found.verify(flipped) is trusted
    assert found.bad is not trusted


@pytest.mark.parametrize("trusted", [False, True])
def test_a_slot_that_was_given_to_another_object_is_noticed_always(trusted):
    assert not fetched(trusted=trusted, generation=6).verify(memoryview(DATA))
