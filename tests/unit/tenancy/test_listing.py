"""Lists are read in pages, in the order of ids, whatever changes between two of them."""

import random

import pytest

from baton.tenancy.directory.listing import Listing, page


def test_ids_of_an_owner_are_sorted_and_each_is_there_once() -> None:
    listing = Listing()
    ids = [f"{n:03}" for n in range(200)]
    drawn = random.Random(1).sample(ids, len(ids))
    for ident in drawn + drawn[:50]:
        listing.add("a", ident)
    listing.add("b", "005")
    assert list(listing.of("a")) == ids
    for ident in drawn[:100] + drawn[:5]:
        listing.remove("a", ident)
    listing.remove("nobody", "005")
    assert list(listing.of("a")) == sorted(drawn[100:])
    assert list(listing.of("b")) == ["005"]
    listing.remove("b", "005")
    assert list(listing.of("b")) == []


@pytest.mark.parametrize("descending", [False, True])
def test_pages_are_the_whole_list(descending: bool) -> None:
    ids = [f"{n:02}" for n in range(23)]
    wanted = [one for one in ids if int(one) % 3]
    expected = wanted[::-1] if descending else wanted
    found: list[str] = []
    more = True
    while more:
        after = found[-1] if found else ""
        part, more = page(ids, 4, wanted.__contains__, after=after, descending=descending)
        assert 1 <= len(part) <= 4
        found += part
    assert found == expected


def test_an_id_that_is_gone_is_a_place_all_the_same() -> None:
    ids = ["a", "c", "d"]
    assert page(ids, 2, lambda _: True, after="b") == (["c", "d"], False)
    assert page(ids, 2, lambda _: True, after="b", descending=True) == (["a"], False)
    assert page(ids, 2, lambda _: True, after="d") == ([], False)
    assert page((), 2, lambda _: True) == ([], False)
