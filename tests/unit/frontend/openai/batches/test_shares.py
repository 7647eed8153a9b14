"""Free places go to the tenant with the fewest lines."""

from uuid import UUID

from baton.batches.records import ActiveBatch
from services.frontend.openai.batches.running.shares import allocate


def batch(tenant: str, number: int) -> ActiveBatch:
    return ActiveBatch(tenant, UUID(int=number), "", "/v1/chat/completions")


def test_tenants_share_places_whatever_their_batches() -> None:
    big, more, small = batch("a", 1), batch("a", 2), batch("b", 3)
    assert allocate(8, [big, more, small], {}) == {big: 4, small: 4}
    assert allocate(8, [more, big, small], {"a": 6}) == {small: 7, more: 1}
    assert allocate(3, [big, small], {"a": 50, "b": 1}) == {small: 3}


def test_tenants_share_places_by_weight() -> None:
    light, heavy = batch("a", 1), batch("b", 2)
    weights = {"b": 3}
    assert allocate(8, [light, heavy], {}, weights) == {light: 2, heavy: 6}
    assert allocate(1, [light, heavy], {"a": 1, "b": 4}, weights) == {heavy: 1}
    assert allocate(1, [light, heavy], {"a": 1, "b": 6}, weights) == {light: 1}


def test_of_a_tenant_the_first_batch_is_first() -> None:
    assert allocate(2, [batch("a", 2), batch("a", 1)], {}) == {batch("a", 2): 2}
    assert allocate(5, [], {"a": 1}) == {} and allocate(0, [batch("a", 1)], {}) == {}
