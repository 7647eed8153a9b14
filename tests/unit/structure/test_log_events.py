"""Log events are named `area.noun.verb`, and their fields come from one list."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.modules import modules

# They read the modules once, in one process.
pytestmark = pytest.mark.xdist_group("log-events")

EVENT = re.compile(r"([a-z]+)\.[a-z_]+\.[a-z_]+")
AREAS = """
    batches budget cli cluster engine etcd files frontend http kv limits model ops organization
    picker process provider public request router rpc session settings spool state tenancy tls usage
    webhook worker
"""
ACCESS_LOG = "request.end"
"""The line of each request, which operators collect: its name stays."""
METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
INDIRECT = {"baton.rpc.tls.watch"}
"""Modules whose events are constants of the module; tests/unit/rpc/tls/test_watch.py reads them."""
FIELDS = """
    peer peers provider reason error exc_info setting effect

    address certificate expires host method path port role roles route seconds_left signal
    surface target task transport

    actor adapter after alert answered_by before change digest etcd_key event_type field key keys
    model name operation project recipients record resource rule status subject subject_prefix
    tenant threshold_dollars spent_dollars month trace_id request_id

    cached_tokens output_tokens prompt_tokens queued_seconds ttft_seconds seconds fetch_seconds
    parse_seconds longest_seconds retry_seconds ttl

    alive attempt blocks bytes count counts lines lost missing objects others records replicas
    requests runs spool_bytes streams usable_bytes

    code direct directory etcd_listed fallback incarnation part process run sequence sink spool
    stream variant verify
"""
"""Names of fields. Use one of them for what it means elsewhere; `peer` is another instance's id."""


@cache
def calls(path: Path) -> tuple[ast.Call, ...]:
    """Return the calls of a module that log an event, also through `partial`."""
    text = path.read_text()
    # Most modules have no `log`: to parse all of them takes a second.
    return tuple(_calls(ast.parse(text))) if re.search(r"\blog\b", text) else ()


def _calls(module: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            if _logs(node.func):
                yield node
            elif node.args and _logs(node.args[0]):
                yield ast.Call(node.args[0], node.args[1:], node.keywords)


def _logs(called: ast.expr) -> bool:
    return (
        isinstance(called, ast.Attribute)
        and called.attr in METHODS
        and isinstance(called.value, ast.Name)
        and called.value.id == "log"
    )


def events(call: ast.Call) -> Iterator[str]:
    """Yield the events that a call may log; empty: it is not written there."""
    match call.args[0]:
        case ast.Constant(value=str(event)):
            yield event
        case ast.IfExp(body=ast.Constant(value=str(event)), orelse=ast.Constant(value=str(other))):
            yield event
            yield other
        case ast.JoinedStr(values=parts):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "x" for p in parts)
        case _:
            yield ""


def fields(call: ast.Call) -> Iterator[str]:
    """Yield the fields of a call's event, also of dicts that it unpacks."""
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield keyword.arg
            continue
        for node in ast.walk(keyword.value):
            if isinstance(node, ast.Dict):
                yield from (str(key.value) for key in node.keys if isinstance(key, ast.Constant))


def test_events_are_area_noun_verb() -> None:
    found = {
        (event, module)
        for module, path in modules().items()
        for call in calls(path)
        for event in events(call)
    }
    assert {module for event, module in found if not event} == INDIRECT
    found = {(event, module) for event, module in found if event not in ("", ACCESS_LOG)}
    named = {(event, module): EVENT.fullmatch(event) for event, module in found}
    assert [one for one, match in named.items() if match is None] == []
    assert {match[1] for match in named.values() if match} == set(AREAS.split())


def test_fields_come_from_one_list() -> None:
    found = {field for path in modules().values() for call in calls(path) for field in fields(call)}
    assert found == set(FIELDS.split())


def test_loggers_are_called_log() -> None:
    other = re.compile(r"^\s*(?!log\b)\w+(: \w+)? = (logs\.)?get_logger\(", re.MULTILINE)
    assert [module for module, path in modules().items() if other.search(path.read_text())] == []


@pytest.mark.parametrize(
    ("source", "event", "found"),
    [
        ('log.info("a.b.c", peer=x)', "a.b.c", ["peer"]),
        ('log.error("a.b.c" if x else "d.e.f")', "d.e.f", []),
        ('log.error(f"a.b.{x}", **({"key": y} if y else {}))', "a.b.x", ["key"]),
        ('call(log.error, "a sentence", error=x)', "a sentence", ["error"]),
        ("log.error(name)", "", []),
    ],
)
def test_calls_are_read(source: str, event: str, found: list[str], tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(source)
    (call,) = calls(module)
    assert [*events(call)][-1] == event
    assert [*fields(call)] == found
