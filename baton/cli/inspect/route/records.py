"""Usage records of one request: in JSONL files, and in ClickHouse."""

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from baton.cli.inspect.route.record_options import RecordOptions
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.history.kept import needle_of
from baton.history.segments import lines_with
from baton.usage.record import UsageRecord, decode
from baton.usage.report.files import files_of

QUERY = (
    "select * from baton.usage_records final where request_id = {id:String} "
    "order by began_ms desc limit 100 format JSONEachRow "
    "settings output_format_json_quote_64bit_integers = 0"
)
_SECONDS = 30.0
_CHUNK_BYTES = 16 * 1024 * 1024


def recorded(options: RecordOptions, request_id: str) -> list[UsageRecord]:
    """Return the usage records of a request, the latest first.

    Raises:
        CommandError: the directory or ClickHouse cannot be read.
    """
    found: dict[str, UsageRecord] = {}
    if options.path is not None:
        if not options.path.exists():
            raise CommandError(f"--path {options.path}: there is no such file or directory.")
        try:
            found.update((record.id, record) for record in in_files(options.path, request_id))
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}.", EXIT_FAILED) from error
    if options.clickhouse_url:
        for record in in_clickhouse(options.clickhouse_url, request_id):
            found[record.id] = record
    return sorted(found.values(), key=lambda record: record.began_ms, reverse=True)


def in_files(path: Path, request_id: str) -> Iterator[UsageRecord]:
    """Yield the records of a request in a directory of files; damaged lines are skipped."""
    needle = needle_of(request_id)
    for file in files_of(path):
        with file.open("rb") as opened:
            for data in _whole_lines(iter(lambda: opened.read(_CHUNK_BYTES), b"")):
                yield from _records(lines_with(data, needle), request_id)


def in_clickhouse(url: str, request_id: str) -> list[UsageRecord]:
    """Return the records of a request in ClickHouse.

    Raises:
        CommandError: it does not respond, or rejects the query.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandError("--clickhouse-url is not an address such as http://clickhouse:8123.")
    query = urllib.parse.urlencode({"param_id": _escaped(request_id)})
    host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
    asked = urllib.request.Request(
        f"{parts.scheme}://{host}{parts.path or '/'}?{query}", QUERY.encode(), method="POST"
    )
    if parts.username:
        asked.add_header("X-ClickHouse-User", urllib.parse.unquote(parts.username))
        asked.add_header("X-ClickHouse-Key", urllib.parse.unquote(parts.password or ""))
    try:
        with urllib.request.urlopen(asked, timeout=_SECONDS) as response:
            lines = response.read().split(b"\n")
    except urllib.error.HTTPError as error:
        said = error.read(500).decode(errors="replace").strip()
        raise CommandError(
            f"ClickHouse at {host} rejected the query: {said}", EXIT_FAILED
        ) from None
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        raise CommandError(f"ClickHouse at {host} is unreachable: {reason}.", EXIT_FAILED) from None
    return list(_records(filter(None, lines), request_id))


def _records(lines: Iterable[bytes], request_id: str) -> Iterator[UsageRecord]:
    for line in lines:
        try:
            record = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # half a line, after a crash
        if record.request_id == request_id:
            yield record


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield chunks that end with a line's end, except for the last one."""
    rest = b""
    for chunk in chunks:
        whole, found, after = chunk.rpartition(b"\n")
        if not found:
            rest += chunk
            continue
        yield rest + whole + found
        rest = after
    if rest:
        yield rest


def _escaped(value: str) -> str:
    """Return a parameter as ClickHouse reads it: tab-separated, with escapes."""
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
