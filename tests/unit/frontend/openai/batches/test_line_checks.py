"""The check of a batch's lines: each error with its line, and bounds on what is held."""

import gzip
import json
from typing import Any

import pytest

from services.frontend.openai.batches.checking.errors import (
    MOST_ERRORS,
    InputError,
    InputErrors,
    listed,
)
from services.frontend.openai.batches.checking.lines import CheckedLine, InputLimits, LineChecker

CHAT = "/v1/chat/completions"
LIMITS = InputLimits(max_lines=50, max_line_bytes=2000, max_values=100, unknown_fields=False)


def line(custom_id: Any = "a", url: str = CHAT, method: str = "POST", **body: Any) -> bytes:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]} | body
    return json.dumps({"custom_id": custom_id, "method": method, "url": url, "body": body}).encode()


def check(
    data: bytes, step: int = 1 << 20, limits: InputLimits = LIMITS
) -> tuple[list[CheckedLine], LineChecker]:
    checker = LineChecker(CHAT, limits)
    found: list[CheckedLine] = []
    for at in range(0, len(data), step):
        found += checker.feed(data[at : at + step])
        if checker.stopped:
            break
    return found + checker.end(), checker


@pytest.mark.parametrize("step", [1, 3, 100, 1 << 20])
def test_lines_are_the_same_in_pieces_of_any_size(step: int) -> None:
    data = b"\xef\xbb\xbf" + line("a") + b"\r\n\n  \r\n" + line("b") + b"\n" + line("c")
    found, checker = check(data, step)
    assert not checker.errors and checker.total == 3
    assert [(one.line.number, one.line.custom_id, one.model) for one in found] == [
        (1, "a", "tiny"),
        (4, "b", "tiny"),
        (5, "c", "tiny"),
    ]


@pytest.mark.parametrize(
    ("bad", "code", "param"),
    [
        (b'{"custom_id": "b", ', "malformed_body", None),
        (b"[]", "malformed_body", None),
        (line(""), "invalid_value", "custom_id"),
        (line("x" * 257), "invalid_value", "custom_id"),
        (line(7), "invalid_value", "custom_id"),
        (line("a\0"), "invalid_value", "custom_id"),
        (line("first"), "invalid_value", "custom_id"),
        (line(method="GET"), "invalid_value", "method"),
        (line(url="/v1/completions"), "invalid_value", "url"),
        (line(stream=True), "unsupported_parameter", "body.stream"),
        (line(store=True), "unsupported_parameter", "body.store"),
        (line(temperature="hot"), "invalid_value", "body.temperature"),
        (line(colour=1), "invalid_value", "body.colour"),
        (line(model=""), "invalid_value", "body.model"),
        (line(stop=["x"] * 200), "body_too_large", None),
        (line(user="x" * 2000), "invalid_value", "line"),
        (b'{"custom_id": "b\xff"}', "malformed_body", None),
        (line()[:-1] + b', "more": 1}', "invalid_value", "more"),
    ],
)
def test_an_error_has_its_line(bad: bytes, code: str, param: str | None) -> None:
    found, checker = check(line("first") + b"\n" + bad + b"\n" + line("last"))
    assert [one.line.custom_id for one in found] == ["first", "last"]
    (error,) = listed(checker.errors)
    assert (error.code, error.line, error.param) == (code, 2, param)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_file"),
        (b"\n \n", "empty_file"),
        (gzip.compress(line()), "invalid_file"),
        (line().decode().encode("utf-16"), "invalid_file"),
        (b"\n".join(line(str(number)) for number in range(51)), "too_many_lines"),
    ],
)
def test_a_file_that_is_no_input_is_said_once(data: bytes, code: str) -> None:
    _, checker = check(data)
    assert [error.code for error in listed(checker.errors)] == [code]


def test_errors_near_the_end_of_the_longest_input() -> None:
    lines = [line(f"c{number}") for number in range(1, 50_002)]
    lines[6] = line("x" * 1_000_000)
    lines[49_998] = lines[49_998][:-1]
    limits = LIMITS._replace(max_lines=50_000, max_line_bytes=2_000_000)
    found, checker = check(b"\r\n".join(lines), limits=limits)
    assert len(found) == 49_998
    errors = {(one.code, one.line, one.param) for one in listed(checker.errors)}
    assert errors == {
        ("invalid_value", 7, "custom_id"),
        ("malformed_body", 49_999, None),
        ("too_many_lines", None, None),
    }
    assert all(len(one.message) < 200 for one in listed(checker.errors))


def test_a_long_line_is_not_held() -> None:
    checker = LineChecker(CHAT, LIMITS)
    for _ in range(100):
        assert checker.feed(b"x" * 1_000_000) == []
        assert len(checker._splitter._held) <= LIMITS.max_line_bytes
    assert len(checker.feed(b"\n" + line() + b"\n")) == 1
    assert [error.line for error in listed(checker.errors)] == [1]


def test_errors_are_bounded() -> None:
    limits = LIMITS._replace(max_lines=10_000)
    checker = LineChecker(CHAT, limits)
    checker.feed(b"{}\n" * (MOST_ERRORS + 7))
    checker.end()
    others = InputErrors()
    for line in (2, 1):
        others.add(InputError("model_not_found", "", line))
    *first, last = listed(checker.errors, others)
    assert len(first) == MOST_ERRORS and last.message == "9 more errors are not listed"
    assert [error.line for error in first[:5]] == [1, 1, 2, 2, 3]
