"""A segment's lines: what is whole is read, what is damaged is passed over, and never taken."""

from hypothesis import given
from hypothesis import strategies as st

from baton.spool.frames import BEGIN, END, HEAD, MAX_BODY, frame, scan
from baton.usage.record import decode, encode
from tests.support.usage.records import begun, ended

FIRST, LAST = begun("first"), begun("last")
LINES = [frame(BEGIN, encode(FIRST)), frame(END, encode(ended(FIRST))), frame(END, encode(LAST))]
DATA = b"".join(LINES)


def bodies(data: bytes, *, final: bool = True) -> list[tuple[bytes, bytes]]:
    return [(kind, body) for kind, body, _ in scan(data, final=final).lines]


WHOLE = bodies(DATA)


def test_what_is_written_is_read() -> None:
    assert [(kind, decode(body)) for kind, body in WHOLE] == [
        (BEGIN, FIRST),
        (END, ended(FIRST)),
        (END, LAST),
    ]
    found = scan(DATA, final=True)
    assert (found.end, found.damaged) == (len(DATA), 0)
    assert [end for _, _, end in found.lines] == [
        len(LINES[0]),
        len(LINES[0] + LINES[1]),
        len(DATA),
    ]


def test_a_tail_that_is_cut_at_any_byte_costs_its_line_alone() -> None:
    before = len(DATA) - len(LINES[-1])
    for cut in range(before, len(DATA)):
        found = scan(DATA[:cut], final=True)
        assert bodies(DATA[:cut]) == WHOLE[:2]
        assert (found.end, found.damaged) == (cut, cut - before)
        growing = scan(DATA[:cut], final=False)
        assert (growing.end, growing.damaged) == (before, 0)


def test_a_byte_that_changed_anywhere_in_the_tail_costs_its_line_alone() -> None:
    before = len(DATA) - len(LINES[-1])
    for at in range(before, len(DATA)):
        for bit in (0x01, 0x20, 0x80):
            data = bytearray(DATA)
            data[at] ^= bit
            found = scan(bytes(data), final=True)
            assert bodies(bytes(data)) == WHOLE[:2], f"byte {at - before}"
            assert (found.end, found.damaged) == (len(DATA), len(LINES[-1]))


def test_damage_in_the_middle_leaves_the_lines_behind_it() -> None:
    for at in range(len(LINES[0]), len(LINES[0] + LINES[1]) - 1):
        data = bytearray(DATA)
        data[at] ^= 0x55
        assert bodies(bytes(data)) == [WHOLE[0], WHOLE[2]]
    lost_break = DATA.replace(LINES[1], LINES[1][:-1])
    assert bodies(lost_break) == [WHOLE[0]]  # and with its line break the line behind it


@given(st.binary(max_size=400))
def test_anything_is_read_to_its_end(data: bytes) -> None:
    found = scan(data, final=True)
    assert found.end == len(data)
    assert found.damaged == len(data) - sum(HEAD + len(body) + 1 for _, body, _ in found.lines)


def test_a_line_that_says_it_is_endless_is_passed_over() -> None:
    long = frame(END, b"x" * (MAX_BODY + 1))
    assert bodies(long + LINES[0]) == WHOLE[:1]
    endless = b"E ffffffff 00000000 " + b"x" * (2 * MAX_BODY)
    assert scan(endless, final=False).damaged == len(endless)
