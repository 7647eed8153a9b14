"""The table of `baton status`."""

import io
from dataclasses import replace

from rich.console import Console

from baton.cli.status import StatusRow, table

WORKER = StatusRow(
    id="prefill-0",
    role="prefill",
    model="baton-random",
    address="127.0.0.1:40485",
    health="SERVING",
    load="0 run, 0 wait",
    kv="0/262144 pages",
)


def shown(*rows: StatusRow) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=80).print(table(rows))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_worker_is_one_line_on_a_narrow_terminal() -> None:
    _, line = shown(WORKER)
    assert line == "  ".join(
        ("prefill-0", "baton-random", "127.0.0.1:40485", "SERVING", WORKER.load, WORKER.kv)
    )


def test_roles_are_shown_where_ids_do_not_tell_them() -> None:
    assert "role" not in shown(WORKER)[0]
    heading, *lines = shown(WORKER, replace(WORKER, id="gpu-7"))
    assert "role" in heading
    assert all("prefill" in line for line in lines if "127" in line)
