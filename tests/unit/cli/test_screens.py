"""On a terminal of 80 columns no value is cut and no word is broken, however long the names are."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from baton.cli.inspect.kv.tables import objects_table, tenants_table, tiers_table
from baton.cli.inspect.status import StatusRow, StoreLoad, WorkerLoad, metrics_table, status_table
from baton.cli.shared.render import steps_table
from baton.cli.shared.table import TextTable, show
from baton.client import Step
from baton.internal.v1 import kvevents_pb2
from baton.internal.v1 import kvstore_pb2 as pb

WIDTH = 80
NAMES = ("decode-0", "decode-7c9d8f6b5d-x2x9z", "baton-prefill-pool-b-5f7d9c8b6c-q8w7r")
ADDRESSES = ("127.0.0.1:40485", "10.128.141.207:50051", "[2001:db8:85a3::8a2e:370:7334]:50051")
MODELS = ("baton-tiny", "meta-llama/Llama-3.3-70B-Instruct-FP8-dynamic")
REASON = (
    "baton-prefill-pool-b-5f7d9c8b6c-q8w7r computes 12345 of 67890 tokens for "
    "decode-7c9d8f6b5d-x2x9z; decode-7c9d8f6b5d-x2x9z alone would take 1234 ms, not 567"
)


def status(name: str, address: str, model: str) -> TextTable:
    rows = [
        StatusRow(
            name, "decode", model, address, address, "SERVING", "1+f0", WorkerLoad(3, 12, 7, 262144)
        ),
        StatusRow("kvstore-0", "kvstore", "", address, address, "NOT_SERVING", "?", None),
        StatusRow(
            "kvstore-1",
            "kvstore",
            "",
            address,
            address,
            "SERVING",
            "1+f0",
            StoreLoad(7**12, 8**12, 9, 1),
        ),
    ]
    return status_table(rows, WIDTH)


def metrics(name: str, address: str, model: str) -> TextTable:
    row = StatusRow(name, "decode", model, address, address, "SERVING", "1+f0", None)
    return metrics_table([row])


def steps(name: str, address: str, model: str) -> TextTable:
    return steps_table(
        [
            Step("route", "router-0", 0.001, 0.0004, 67890, 55545, 0, REASON),
            Step("transfer", name, 10.01, 100.25, 67890, 55545, 3 << 30, f"shm of {address}"),
        ]
    )


def objects(name: str, address: str, model: str) -> TextTable:
    infos = [
        pb.ObjectInfo(
            key=bytes([number]) * 16,
            layout_id=b"L" * 16,
            object_bytes=1234567,
            tenant=model,
            tiers=[kvevents_pb2.TIER_DRAM, kvevents_pb2.TIER_DISK],
            partial=number == 1,
        )
        for number in range(2)
    ]
    return objects_table((address, info) for info in infos)


def tiers(name: str, address: str, model: str) -> TextTable:
    tier = pb.TierStat(
        tier=kvevents_pb2.TIER_DISK,
        used_bytes=10**12,
        capacity_bytes=10**13,
        objects=10**9,
        evictions=10**9,
        bad_objects=10**6,
        failed="/mnt/disks/ssd-array-0/baton/kv.data: No space left on device",
    )
    return tiers_table([pb.StatResponse(store_id=name, tiers=[tier])])


def tenants(name: str, address: str, model: str) -> TextTable:
    tenant = pb.TenantStat(
        tenant=model, tier=kvevents_pb2.TIER_DISK, used_bytes=10**12, share_bytes=10**13
    )
    return tenants_table([pb.StatResponse(store_id=name, tenants=[tenant])])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", [status, metrics, steps, objects, tiers, tenants])
def test_every_value_is_there_and_whole(
    make: Callable[[str, str, str], TextTable], name: str, address: str, model: str
) -> None:
    table = make(name, address, model)
    shown = terminal(table, WIDTH)
    assert max(map(len, shown)) <= WIDTH
    text = "\n".join(shown)
    for cells, note in table.rows:
        assert all(cell.plain in text for cell in cells)
        assert set(note.split()) <= set(text.split())
    assert "…" not in text


def test_a_value_wider_than_the_terminal_is_left_whole() -> None:
    name = "n" * 100
    assert any(name in line for line in terminal(metrics(name, "h:1", "m"), WIDTH))


def test_in_a_file_each_row_is_a_line_and_each_column_aligned() -> None:
    table = status(NAMES[2], ADDRESSES[2], MODELS[1])
    out = io.StringIO()
    show(Console(file=out, width=WIDTH), table)
    lines = out.getvalue().splitlines()
    assert len(lines) == 1 + len(table.rows)
    assert {line.index(ADDRESSES[2]) for line in lines[1:]} == {lines[0].index("address")}


def test_what_all_objects_share_is_said_once_where_room_is_short() -> None:
    heading, *lines = terminal(objects("", ADDRESSES[0], "default"), WIDTH)
    assert heading == f"part 0/0/0  tenant default  layout {'4c' * 16}"
    assert lines[0] == f"store {ADDRESSES[0]}"
    assert lines[1].split() == ["key", "bytes", "tiers"]
    assert [line.split()[0] for line in lines[2:]] == ["00" * 16, "01" * 16]


def test_a_note_under_a_heading_is_a_last_column_that_may_take_lines() -> None:
    table = TextTable(("setting", "source"), note_heading="value")
    table.add("BATON_ETCD_CLUSTER", "default", note="local")
    table.add("BATON_PEERS", "env", note=" ".join(ADDRESSES * 3))
    heading, short, *long = terminal(table, WIDTH)
    assert heading.split() == ["setting", "source", "value"]
    assert short == "BATON_ETCD_CLUSTER  default  local"
    assert long[0] == "BATON_PEERS         env"
    assert " ".join(long[1:]).split() == [*ADDRESSES] * 3
    assert max(map(len, long)) <= WIDTH


def terminal(table: TextTable, width: int) -> list[str]:
    out = io.StringIO()
    show(Console(file=out, width=width, force_terminal=True, no_color=True), table)
    plain = out.getvalue()
    for code in ("\x1b[1m", "\x1b[2m", "\x1b[0m"):
        plain = plain.replace(code, "")
    return plain.splitlines()
