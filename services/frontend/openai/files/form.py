"""Forms with one file, as multipart/form-data (RFC 7578), read while they arrive."""

from collections.abc import AsyncIterator, Awaitable, Callable

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from baton.errors import BatonError, Reason, invalid_field

FILE = "file"
_MAX_PARTS = 16
_MAX_VALUE = 512
_MAX_NAME = 255
_MAX_BOUNDARY = 70
"""Characters, as in RFC 2046."""


def boundary_of(content_type: str) -> bytes:
    """Return the boundary of a form.

    Raises:
        BatonError: UNSUPPORTED_MEDIA_TYPE: it is not a form; MALFORMED_BODY: it has no boundary.
    """
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data":
        raise BatonError(
            Reason.UNSUPPORTED_MEDIA_TYPE,
            f"content type {content_type[:64]!r} is not supported: send multipart/form-data",
        )
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= _MAX_BOUNDARY:
        raise BatonError(
            Reason.MALFORMED_BODY,
            f"content-type: the boundary must have 1 to {_MAX_BOUNDARY} characters",
        )
    return boundary


class UploadForm:
    """The fields of a form, and the bytes of its file as they come.

    Args:
        boundary: between its parts.
        known: names of its fields, besides `file`.
        most: bytes that the file may have.
    """

    def __init__(self, boundary: bytes, known: frozenset[str], most: int) -> None:
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        """None: no file has come."""
        self._known = known
        self._most = most
        self._size = self._parts = 0
        self._ended = False
        self._name = ""
        """Of the part that is coming."""
        self._header, self._value = bytearray(), bytearray()
        self._disposition = b""
        self._text = bytearray()
        self._pieces: list[bytes] = []
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": self._add_header,
                "on_header_value": self._add_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._add_data,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
        )

    async def pieces(self, next_piece: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
        """Yield the bytes of the file; then `fields` are complete.

        Args:
            next_piece: returns the next bytes of the body; none: it is complete.

        Raises:
            BatonError: the form is malformed, has other fields, or its file is too long.
        """
        while data := await next_piece():
            try:
                self._parser.write(data)
            except FormParserError as error:
                raise _malformed(str(error)) from error
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                yield piece
        if not self._ended:
            raise _malformed("it ends before its last boundary")
        if self.filename is None:
            raise invalid_field(FILE, "is required")

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise _malformed(f"it has more than {_MAX_PARTS} parts")
        self._name, self._disposition = "", b""
        self._text.clear()

    def _add_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = bytes(self._value)
        self._header.clear()
        self._value.clear()

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if name == FILE:
            if self.filename is not None:
                raise invalid_field(FILE, "is set more than once")
            self.filename = clean_name(options.get(b"filename", b""))
        elif name not in self._known:
            raise invalid_field(name[:64] or "body", "unknown parameter")
        elif name in self.fields:
            raise invalid_field(name, "is set more than once")
        self._name = name

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._name == FILE:
            self._size += end - start
            if self._size > self._most:
                raise too_long(self._most)
            self._pieces.append(data[start:end])
            return
        self._text += data[start:end]
        if len(self._text) > _MAX_VALUE:
            raise invalid_field(self._name, f"is longer than {_MAX_VALUE} bytes")

    def _end_part(self) -> None:
        if self._name != FILE:
            self.fields[self._name] = self._text.decode("utf-8", "replace")

    def _end(self) -> None:
        self._ended = True


def clean_name(given: bytes) -> str:
    """Return a file's name without directories and characters that do not print.

    Raises:
        BatonError: INVALID_FIELD: nothing is left of it, or it is too long.
    """
    text = given.decode("utf-8", "replace").replace("\\", "/").rpartition("/")[2]
    name = "".join(character for character in text if character.isprintable())
    if not name or len(name) > _MAX_NAME:
        raise invalid_field(FILE, f"its filename must have 1 to {_MAX_NAME} characters")
    return name


def too_long(most: int) -> BatonError:
    """Return the error of a file that is too long."""
    return BatonError(
        Reason.BODY_TOO_LARGE, f"the file exceeds the limit of {most} bytes (files.max_file_bytes)"
    )


def _malformed(what: str) -> BatonError:
    return BatonError(Reason.MALFORMED_BODY, f"the form is malformed: {what}")
