"""Log lines as a person reads them."""

import json

from baton.cli.cluster.local.output.log_lines import LINES, WIDTH, readable


def line(event: str = "kv.store.lost", **fields: object) -> str:
    context = {
        "level": "warning",
        "logger": "baton.kv.client",
        "timestamp": "2026-11-21T00:51:54.891224Z",
        "service": "decode",
        "instance": "decode-0",
        "trace_id": "0" * 32,
    }
    return json.dumps({**fields, "event": event, **context})


def test_a_line_says_when_how_bad_what_and_the_fields_of_its_own() -> None:
    said = readable([line(peer="kvstore-0", reason="its stream ended", tries=3)])
    assert said == [
        '00:51:54 warning kv.store.lost  peer=kvstore-0 reason="its stream ended" tries=3'
    ]


def test_lines_of_etcd_read_alike() -> None:
    entry = {"level": "warn", "ts": "2026-11-21T00:55:36.489Z", "caller": "a.go:1", "msg": "slow"}
    assert readable([json.dumps({**entry, "took": "126ms"})]) == [
        "00:55:36 warn    slow  took=126ms"
    ]


def test_of_a_traceback_the_last_line_is_printed() -> None:
    failure = "Traceback (most recent call last):\n  File x\nValueError: no such thing\n"
    assert readable([line("http.request.failed", exception=failure)])[0].endswith(
        "http.request.failed  ValueError: no such thing"
    )


def test_what_is_not_ours_stays_as_it_is() -> None:
    assert readable(["Segmentation fault", "", "17", '{"broken']) == [
        "Segmentation fault",
        "17",
        '{"broken',
    ]


def test_only_the_last_lines_are_printed_and_none_is_long() -> None:
    said = readable([line(why="x" * 1000, number=number) for number in range(20)])
    assert len(said) == LINES
    assert "number=19" in said[-1]
    assert len(readable(["y" * 1000])[0]) == WIDTH


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in readable([line(why="\x1b[2J")])[0]
