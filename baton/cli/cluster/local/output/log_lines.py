"""Log lines of processes in readable form: time, level, event, fields. Pure."""

import json
from collections.abc import Sequence
from typing import Any

LINES = 5
WIDTH = 160
"""Longest line, in characters; longer ones end in `…`."""
_VALUE_WIDTH = 80
_KNOWN = frozenset({"event", "level", "timestamp", "exception"})
_CONTEXT = frozenset({"service", "instance", "logger", "trace_id", "span_id"})
"""Fields on every line of a process, omitted if the process is known."""
_OF_ETCD = {"ts": "timestamp", "msg": "event"}


def readable(lines: Sequence[str], count: int = LINES) -> list[str]:
    """Return the last `count` lines in readable form.

    Args:
        lines: of a log file. JSON as Baton's processes and etcd write it is formatted; anything
            else, such as a traceback of the interpreter, stays as it is.
        count: at most so many are returned.
    """
    last = [line for line in lines if line.strip()][-count:]
    return [_shorten(_words(line), WIDTH) for line in last]


def _words(line: str) -> str:
    try:
        entry = json.loads(line)
    except ValueError:
        return line.rstrip()
    if not isinstance(entry, dict):
        return line.rstrip()
    known = {_OF_ETCD.get(key, key): value for key, value in entry.items() if key != "caller"}
    fields = [
        f"{key}={_shorten(_value(value), _VALUE_WIDTH)}"
        for key, value in known.items()
        if key not in _KNOWN | _CONTEXT and value not in (None, "")
    ]
    if failure := str(known.get("exception", "")).strip():
        fields.append(failure.splitlines()[-1])
    moment = _time_of_day(str(known.get("timestamp", "")))
    head = (moment, str(known.get("level", "")).ljust(7), str(known.get("event", "")))
    return "  ".join(part for part in (" ".join(filter(None, head)), " ".join(fields)) if part)


def _time_of_day(timestamp: str) -> str:
    """Return `12:30:01` of `2026-01-31T12:30:01.123456Z`: the date is today's."""
    return timestamp.partition("T")[2][:8] or timestamp


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return json.dumps(text, ensure_ascii=False) if " " in text or not text.isprintable() else text


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
