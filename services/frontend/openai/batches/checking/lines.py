"""Checks the lines of a batch's input: on a thread, as they are read."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from baton.batches.records import NewLine
from baton.errors import BatonError, invalid_field
from services.frontend.http.json_body import decode_body, not_json
from services.frontend.http.values import check_values
from services.frontend.openai.batches.checking.errors import InputError, InputErrors
from services.frontend.openai.batches.checking.prefix import prompt_prefix
from services.frontend.openai.batches.checking.splitting import LineSplitter
from services.frontend.openai.batches.endpoints import ENDPOINTS

_MAX_CUSTOM_ID = 256
_GZIP = b"\x1f\x8b"
_UTF16 = b"\xff\xfe", b"\xfe\xff"


class LineBody(msgspec.Struct, forbid_unknown_fields=True):
    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


_line = msgspec.json.Decoder(LineBody)


class InputLimits(NamedTuple):
    """Bounds of an input."""

    max_lines: int
    max_line_bytes: int
    max_values: int
    unknown_fields: bool
    """Whether fields of bodies that are not known are ignored."""


class CheckedLine(NamedTuple):
    """A line that is correct, if its model is."""

    line: NewLine
    model: str


class LineChecker:
    """Checks lines one after the other. Used by one thread at a time.

    Args:
        endpoint: of the batch: all lines must name it.
        limits: bounds.
    """

    def __init__(self, endpoint: str, limits: InputLimits) -> None:
        self.errors = InputErrors()
        self.total = 0
        """Lines that are not empty."""
        self._endpoint = endpoint
        self._limits = limits
        self._splitter = LineSplitter(limits.max_line_bytes)
        self._number = 0
        self._ids: set[str] = set()
        self.stopped = False
        """Whether the rest is not worth reading."""

    def feed(self, piece: bytes) -> list[CheckedLine]:
        """Return the lines that end in a piece and are correct."""
        if self._number == 0 and piece.startswith((_GZIP, *_UTF16)):
            what = "compressed" if piece.startswith(_GZIP) else "in UTF-16"
            self._fail("invalid_file", f"the file is {what}: send plain JSONL in UTF-8")
            self.stopped = True
            return []
        return self._take(self._splitter.feed(piece))

    def end(self) -> list[CheckedLine]:
        """Return the last line, if its end is missing; then `errors` is complete."""
        found = [] if self.stopped else self._take(self._splitter.end())
        if not (self.total or self.errors):
            self._fail("empty_file", "the file has no lines: each line is one request")
        return found

    def _take(self, lines: Iterable[bytes | None]) -> list[CheckedLine]:
        found: list[CheckedLine] = []
        for line in lines:
            self._number += 1
            if line is not None and not line.strip():
                continue
            self.total += 1
            if self.total > self._limits.max_lines:
                most = f"more than {self._limits.max_lines} lines (batches.max_lines)"
                self._fail("too_many_lines", f"the file has {most}: send several batches")
                self.stopped = True
                break
            try:
                found.append(self._check(line))
            except BatonError as error:
                code = error.reason.openai_code
                self.errors.add(InputError(code, error.message, self._number, error.field))
        return found

    def _check(self, line: bytes | None) -> CheckedLine:
        """Return a line that is correct.

        Raises:
            BatonError: it is not.
        """
        limits = self._limits
        if line is None:
            raise invalid_field("line", f"is longer than {limits.max_line_bytes} bytes")
        check_values(line, limits.max_values)
        read = decode_body(_line, line)
        name = read.custom_id
        if not 0 < len(name) <= _MAX_CUSTOM_ID or "\0" in name:
            raise invalid_field(
                "custom_id", f"must have 1 to {_MAX_CUSTOM_ID} characters, and no NUL"
            )
        if name in self._ids:
            raise invalid_field("custom_id", f"{name[:64]!r} is the one of an earlier line too")
        self._ids.add(name)
        if read.method != "POST":
            raise invalid_field("method", "must be POST")
        if read.url != self._endpoint:
            raise invalid_field("url", f"must be the batch's endpoint, {self._endpoint}")
        try:
            body = bytes(read.body)
            body.decode()  # also where no field is read
            model = ENDPOINTS[self._endpoint](body, limits.unknown_fields)
        except UnicodeDecodeError as error:
            raise not_json(error) from error
        except BatonError as error:
            field = f"body.{error.field}" if error.field else "body"
            raise BatonError(error.reason, error.message, field=field) from error
        if not model:
            raise invalid_field("body.model", "is required; /v1/models lists the models")
        return CheckedLine(NewLine(self._number, name, body, prompt_prefix(body)), model)

    def _fail(self, code: str, message: str) -> None:
        self.errors.add(InputError(code, message))
