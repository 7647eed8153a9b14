"""Stop strings are found in streams as in whole texts, and hold back no more than they must."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from services.frontend.text.stop_strings import StopScanner

texts = st.text(alphabet="ab", max_size=40)
stop_lists = st.lists(st.text(alphabet="ab", min_size=1, max_size=6), min_size=1, max_size=4)
cuts = st.lists(st.integers(0, 40), max_size=10)


def first_stop(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The definition: the stop string that is complete first, the longest of those."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


def pieces(text: str, at: list[int]) -> list[str]:
    edges = [0, *sorted(min(cut, len(text)) for cut in at), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@given(texts, stop_lists, cuts)
def test_streamed_text_ends_where_whole_text_ends(
    text: str, stops: list[str], at: list[int]
) -> None:
    scanner, given_out, found = StopScanner(stops), "", None
    for piece in pieces(text, at):
        scanned = scanner.push(piece)
        given_out += scanned.text
        found = scanned.stop
        if found is not None:
            break
    else:
        given_out += scanner.flush()
    assert (given_out, found) == first_stop(text, stops)


@given(texts, stop_lists)
def test_what_is_held_back_may_still_become_a_stop_string(text: str, stops: list[str]) -> None:
    text, _ = first_stop(text, stops)
    scanner = StopScanner(stops)
    given_out = "".join(scanner.push(letter).text for letter in text)
    held = scanner.flush()
    assert given_out + held == text
    beginnings = {stop[:length] for stop in stops for length in range(1, len(stop))}
    longest = max((len(one) for one in beginnings if text.endswith(one)), default=0)
    assert len(held) == longest
