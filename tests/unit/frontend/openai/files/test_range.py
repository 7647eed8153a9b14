"""Ranges of files, as RFC 9110 has them."""

import pytest

from services.frontend.openai.files.content import range_of

WHOLE, NONE = (0, 10, 200), (0, 0, 416)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("", WHOLE),
        ("bytes=0-3", (0, 4, 206)),
        ("bytes=3-", (3, 10, 206)),
        ("bytes=-3", (7, 10, 206)),
        ("bytes=-30", (0, 10, 206)),
        ("bytes=5-300", (5, 10, 206)),
        ("bytes=9-9", (9, 10, 206)),
        ("bytes=10-", NONE),
        ("bytes=-0", NONE),
        ("bytes=4-3", WHOLE),
        ("bytes=-", WHOLE),
        ("bytes=0-1,3-4", WHOLE),
        ("lines=0-3", WHOLE),
        ("bytes=" + "9" * 19 + "-", WHOLE),
    ],
)
def test_a_range_is_one_of_bytes(asked: str, found: tuple[int, int, int]) -> None:
    assert range_of(asked, 10) == found


def test_an_empty_file_has_no_range() -> None:
    assert range_of("", 0) == (0, 0, 200)
    assert range_of("bytes=0-", 0) == NONE
