"""Buckets are the range, and pages together are one big answer."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import BatonError
from baton.usage.report.question import MAX_SECONDS
from services.frontend.admin.usage.buckets import Range, page_token, read_token

WIDTHS = st.sampled_from((60, 3600, 86_400))
RANGES = st.builds(
    lambda begin, seconds, width: Range(begin, begin + seconds, width),
    st.integers(0, 2 * 10**9),
    st.integers(1, 200_000),
    WIDTHS,
)


@given(RANGES)
def test_buckets_partition_the_range(asked: Range) -> None:
    buckets = asked.buckets(10_000)
    assert buckets[0][0] == asked.begin
    assert buckets[-1][1] == asked.end
    assert all(before[1] == after[0] for before, after in pairwise(buckets))
    assert all(begin < end for begin, end in buckets)
    # Where a bucket ends within the range, a minute, hour or day of UTC does.
    assert all(end % asked.width == 0 for _, end in buckets[:-1])
    assert all(end - begin <= asked.width for begin, end in buckets)
    assert len({begin // asked.width for begin, _ in buckets}) == len(buckets)


@given(RANGES, st.integers(1, 50), st.binary(max_size=40))
def test_pages_together_are_all_buckets(asked: Range, limit: int, question: bytes) -> None:
    found, rest = [], asked
    while True:
        page = rest.buckets(limit)
        found += page
        if page[-1][1] == asked.end:
            break
        token = page_token(page[-1][1], asked.end, question)
        assert len(token) <= 128
        rest = read_token(token, asked.begin, asked.width, question)
    assert found == asked.buckets(10_000)


def test_a_range_that_has_not_begun_has_no_buckets() -> None:
    assert Range(100, 50, 60).buckets(5) == []


TOKEN = page_token(7200, 10_000, b"q")


@pytest.mark.parametrize(
    ("token", "begin", "width", "question"),
    [
        ("", 0, 60, b"q"),
        ("page_", 0, 60, b"q"),
        ("page_!!!", 0, 60, b"q"),
        (TOKEN[:-3], 0, 60, b"q"),
        (TOKEN + "AAAA", 0, 60, b"q"),
        (TOKEN, 0, 60, b"p"),
        (TOKEN, 7200, 60, b"q"),
        (TOKEN, 0, 86_400, b"q"),
        (page_token(7200, 7200, b"q"), 0, 60, b"q"),
        (page_token(7200, MAX_SECONDS + 1, b"q"), 0, 60, b"q"),
        (page_token(-60, 7200, b"q"), 0, 60, b"q"),
        ("page_é", 0, 60, b"q"),
    ],
)
def test_another_token_is_refused(token: str, begin: int, width: int, question: bytes) -> None:
    with pytest.raises(BatonError, match="page: is not the `next_page`") as caught:
        read_token(token, begin, width, question)
    assert caught.value.field == "page"


def test_the_token_of_the_question_is_taken() -> None:
    assert read_token(TOKEN, 0, 60, b"q") == Range(7200, 10_000, 60)
