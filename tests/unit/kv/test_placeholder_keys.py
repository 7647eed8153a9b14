"""Keys of prompts with placeholder tokens: what stands for them is in the keys, and where."""

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.kv.keys import (
    PlaceholderRun,
    PromptKeys,
    check_runs,
    full_block_keys,
    prompt_keys,
    token_bytes,
)

ROOT = b"r" * 16
PAD = 7
"""The placeholder token."""


def _digest(picture: int) -> bytes:
    return hashlib.sha256(b"picture %d" % picture).digest()


@st.composite
def _prompts(draw: st.DrawFn) -> tuple[list[int], list[PlaceholderRun], int]:
    """Return tokens, runs of placeholder tokens in them, and the tokens of a block."""
    tokens: list[int] = []
    runs: list[PlaceholderRun] = []
    for _ in range(draw(st.integers(1, 4))):
        tokens += draw(st.lists(st.integers(0, 9), max_size=12))
        length = draw(st.integers(1, 20))
        runs.append(PlaceholderRun(len(tokens), length, _digest(draw(st.integers(0, 1)))))
        tokens += [PAD] * length
    tokens += draw(st.lists(st.integers(0, 9), max_size=12))
    return tokens, runs, draw(st.integers(1, 9))


def _common(one: PromptKeys, other: PromptKeys) -> int:
    """Return the number of leading blocks with equal keys; no later ones may be equal."""
    assert len(one.all) == len(other.all)
    equal = [a == b for a, b in zip(one.all, other.all, strict=True)]
    count = equal.index(False) if False in equal else len(equal)
    assert not any(equal[count:])
    return count


@given(_prompts(), st.data())
def test_another_picture_shares_no_key_from_its_first_block_on(
    prompt: tuple[list[int], list[PlaceholderRun], int], data: st.DataObject
) -> None:
    tokens, runs, block = prompt
    at = data.draw(st.integers(0, len(runs) - 1))
    other = [*runs[:at], runs[at]._replace(digest=_digest(2)), *runs[at + 1 :]]
    one, two = (prompt_keys(ROOT, tokens, block, each) for each in (runs, other))
    assert _common(one, two) == runs[at].offset // block
    assert prompt_keys(ROOT, tokens, block, list(runs)) == one


@given(_prompts())
def test_a_picture_shares_no_key_with_its_placeholders_as_text(
    prompt: tuple[list[int], list[PlaceholderRun], int],
) -> None:
    tokens, runs, block = prompt
    plain, pictured = prompt_keys(ROOT, tokens, block), prompt_keys(ROOT, tokens, block, runs)
    assert _common(plain, pictured) == runs[0].offset // block


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 9))
def test_one_run_and_two_share_no_key_from_the_second_on(
    first: int, second: int, block: int
) -> None:
    tokens = [PAD] * (first + second)
    joined = [PlaceholderRun(0, first + second, _digest(0))]
    split = [PlaceholderRun(0, first, _digest(0)), PlaceholderRun(first, second, _digest(0))]
    one, two = (prompt_keys(ROOT, tokens, block, each) for each in (joined, split))
    assert _common(one, two) == first // block


@given(_prompts(), st.lists(st.integers(0, 9), max_size=30))
def test_a_longer_prompt_begins_with_the_same_full_keys(
    prompt: tuple[list[int], list[PlaceholderRun], int], more: list[int]
) -> None:
    tokens, runs, block = prompt
    short = prompt_keys(ROOT, tokens, block, runs)
    assert tuple(full_block_keys(ROOT, token_bytes(tokens), block, runs)) == short.full
    longer = prompt_keys(ROOT, [*tokens, *more], block, runs)
    assert longer.full[: len(short.full)] == short.full


def test_the_formula_is_the_documented_one() -> None:
    runs = [PlaceholderRun(1, 4, _digest(0)), PlaceholderRun(5, 2, _digest(1))]
    keys = prompt_keys(ROOT, [3, *[PAD] * 6], 4, runs)
    tokens = struct.pack("<4I", 3, PAD, PAD, PAD) + _digest(0) + struct.pack("<3I", 1, 0, 3)
    full = hashlib.sha256(b"baton.kv.1/full\0" + ROOT + tokens).digest()[:16]
    assert keys.full == (full,)
    assert full.hex() == "5b4a28c447210f193c72361920b76695"
    rest = struct.pack("<4I", 3, PAD, PAD, PAD)
    rest += _digest(0) + struct.pack("<3I", 0, 3, 1) + _digest(1) + struct.pack("<3I", 1, 0, 2)
    partial = hashlib.sha256(b"baton.kv.1/part\0" + full + rest).digest()[:16]
    assert keys.partial == partial
    assert partial.hex() == "7ec13848dc9d8e49fa04233db39ab88b"


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ([PlaceholderRun(0, 4, b"short")], "a digest of 5 bytes"),
        ([PlaceholderRun(0, 0, _digest(0))], "0 placeholder tokens at 0"),
        ([PlaceholderRun(-1, 2, _digest(0))], "2 placeholder tokens at -1"),
        ([PlaceholderRun(7, 4, _digest(0))], "within the prompt of 10 tokens"),
        ([PlaceholderRun(0, 4, _digest(0)), PlaceholderRun(3, 4, _digest(0))], "4 placeholder"),
        ([PlaceholderRun(5, 1, _digest(0)), PlaceholderRun(0, 4, _digest(0))], "in order"),
    ],
)
def test_runs_that_do_not_fit_are_refused(runs: list[PlaceholderRun], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check_runs(runs, 10)
    check_runs([PlaceholderRun(0, 4, _digest(0)), PlaceholderRun(4, 6, _digest(0))], 10)
