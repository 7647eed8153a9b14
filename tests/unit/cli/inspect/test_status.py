"""The table of `baton status`."""

from dataclasses import replace

from baton.cli.inspect.status import (
    StatusRow,
    StoreLoad,
    WorkerLoad,
    compiled_lines,
    describe_operators,
    status_table,
)
from baton.internal.v1 import cluster_pb2

WORKER = StatusRow(
    id="prefill-0",
    role="prefill",
    model="baton-random",
    address="127.0.0.1:40485",
    metrics_address="127.0.0.1:39999",
    health="SERVING",
    version="0.1.0+62147068",
    load=WorkerLoad(running=0, waiting=0, used_pages=0, total_pages=262144),
)
STORE = StatusRow(
    id="kvstore-0",
    role="kvstore",
    model="",
    address="127.0.0.1:40486",
    metrics_address="127.0.0.1:40000",
    health="SERVING",
    version="0.1.0+62147068",
    load=StoreLoad(used_bytes=1234567, capacity_bytes=64 << 20, objects=3, leases=0),
)


def shown(*rows: StatusRow, width: int | None = 80) -> list[str]:
    return [line.plain for line in status_table(rows, width).lines(width)]


def test_a_worker_and_a_store_are_one_line_each_on_a_narrow_terminal() -> None:
    _, worker, store = shown(WORKER, STORE)
    assert worker.split("  ") == [
        "prefill-0",
        "baton-random",
        "127.0.0.1:40485",
        "SERVING",
        "0 run, 0 wait",
        "0/262144 pages",
    ]
    assert store.split()[-3:] == ["1.2", "MiB/64", "MiB"]


def test_metrics_are_shown_where_there_is_room() -> None:
    assert all("127.0.0.1:39999" not in line for line in shown(WORKER))
    for width in (120, None):
        heading, line = shown(WORKER, width=width)
        assert heading.split()[-1] == "metrics"
        assert line.split()[-1] == "127.0.0.1:39999"


def test_roles_are_shown_where_ids_do_not_tell_them() -> None:
    assert "role" not in shown(WORKER)[0]
    heading, *lines = shown(WORKER, replace(WORKER, id="gpu-7"), width=120)
    assert "role" in heading
    assert all("prefill" in line for line in lines if "127" in line)


def test_who_tells_nothing_of_its_load_is_told_from_who_has_none() -> None:
    router = replace(WORKER, id="router-0", role="router", load=None)
    assert replace(WORKER, load=None).cells() == ("?", "?")
    assert replace(WORKER, load=None, health="UNREACHABLE").cells() == ("", "")
    assert router.cells() == ("", "")


def test_versions_are_shown_where_they_differ() -> None:
    other = replace(STORE, version="?")
    assert "version" not in shown(WORKER, STORE)[0]
    heading, worker, store = shown(WORKER, other, width=None)
    at = heading.index("version")
    assert (worker[at:].split()[0], store[at:].split()[0]) == ("0.1.0+62147068", "?")


def test_operators_are_told_once_where_all_workers_have_the_same() -> None:
    compiled = replace(WORKER, operators="compiled operators for x86-64-v4")
    other = replace(WORKER, id="decode-0", operators="plain torch (there is no C++ compiler)")
    assert compiled_lines([WORKER, STORE]) == []
    assert compiled_lines([compiled, replace(compiled, id="decode-0"), STORE]) == [
        "All workers: compiled operators for x86-64-v4."
    ]
    assert compiled_lines([compiled, other, STORE]) == [
        "prefill-0: compiled operators for x86-64-v4.",
        "decode-0: plain torch (there is no C++ compiler).",
    ]


def test_operators_of_a_record_are_words() -> None:
    assert describe_operators(cluster_pb2.Instance()) is None
    compiled = cluster_pb2.Operators(variant="x86-64-v4")
    second = cluster_pb2.Operators(variant="x86-64-v4", reason="x86-64-v4-amx is not used: why")
    plain = cluster_pb2.Operators(reason="there is no C++ compiler")
    assert [
        describe_operators(cluster_pb2.Instance(operators=one)) for one in (compiled, second, plain)
    ] == [
        "compiled operators for x86-64-v4",
        "compiled operators for x86-64-v4 (x86-64-v4-amx is not used: why)",
        "plain torch (there is no C++ compiler)",
    ]


def test_what_a_router_has_compiled_is_told_beside_its_workers_operators() -> None:
    index = cluster_pb2.CompiledPart(name="prefix index")
    scores = cluster_pb2.CompiledPart(
        name="scores", fallback="array operations", reason="there is no C compiler"
    )
    told = describe_operators(cluster_pb2.Instance(compiled_parts=(index, scores)))
    router = replace(WORKER, id="router-0", role="router", operators=told)
    worker = replace(WORKER, operators="compiled operators for x86-64-v4")
    assert compiled_lines([worker, router]) == [
        "All workers: compiled operators for x86-64-v4.",
        "All routers: prefix index compiled, scores in array operations (there is no C compiler).",
    ]
