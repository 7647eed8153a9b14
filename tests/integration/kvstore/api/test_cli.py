"""`baton kv` against a running store."""

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.integration.kvstore.disk.objects import still
from tests.support.processes.launcher import Launcher
from tests.support.stores import (
    MIB,
    block,
    connected,
    get,
    keys_of,
    put,
    running_store,
)

SIZE = 64 * 1024


Call = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def call(launcher: Launcher) -> Call:
    """Runs a command; its exit code, output and complaints."""
    main = ("-c", "from baton.cli.app import main; main()", "kv")
    return lambda *arguments: launcher.run((*main, *arguments), {**os.environ, "COLUMNS": "60"})


async def test_what_a_store_holds_can_be_seen_got_verified_and_dropped(
    call: Call, tmp_path: Path
) -> None:
    keys = keys_of(100)
    async with running_store(tmp_path, 4 * MIB, disk_path=tmp_path / "disk") as running:
        at = ("--store", running.address)
        async with connected(running.address, "shm") as client:
            for first in range(0, 100, 4):
                await put(client, keys[first : first + 4], SIZE, first)
                await still(running)

            code, out, _ = await call("stat", *at)
            assert code == 0
            assert "dram" in out
            assert "disk" in out
            code, out, _ = await call("stat", "--json", *at)
            (stat,) = json.loads(out)
            assert [tier["tier"] for tier in stat["tiers"]] == [2, 3]
            held = {slot.object_id.key for slot in running.store.table.objects()}
            assert running.store.disk is not None
            held |= {e.object_id.key for e in running.store.disk.index.entries()}

            code, out, _ = await call("ls", "--limit", "1000", *at)
            assert code == 0
            assert {line.split()[0] for line in out.splitlines()[1:]} == {key.hex() for key in held}
            some = keys.index(min(held))
            assert len((await call("ls", keys[some].hex(), *at))[1].splitlines()) == 2
            assert (await call("ls", "--tenant", "nobody", *at))[1].splitlines()[1:] == []

            file = tmp_path / "object"
            code, _, _ = await call("get", keys[some].hex(), "--out", str(file), *at)
            assert code == 0
            assert file.read_bytes() == block(some, SIZE)
            code, _, err = await call("get", "ffff", *at)
            assert code == 1
            assert "no object has a key that starts with ffff" in err
            code, _, err = await call("get", "6b", *at)
            assert code == 1
            assert "enter more digits" in err
            code, _, err = await call("get", keys[some].hex(), "--out", str(tmp_path / "no/f"), *at)
            assert code == 2
            assert "No such file or directory" in err

            code, out, _ = await call("verify", *at)
            assert code == 0
            assert out.splitlines()[1].split()[1:] == [str(len(held)), "0", "0"]

            slot = running.store.table.objects()[0]
            running.store.arena.view(slot)[100] ^= 1
            code, out, err = await call("verify", *at)
            assert code == 1
            assert "found and dropped 1 corrupt objects" in err
            # The bytes on disk, if there are any, are right ones.
            left, _ = await get(client, [slot.object_id.key], SIZE)
            number = keys.index(slot.object_id.key)
            assert left in ({}, {0: block(number, SIZE)})

            code, out, _ = await call("drop", keys[some].hex(), keys_of(1, "none")[0].hex(), *at)
            assert code == 0
            assert out.startswith("dropped 1 objects")
            assert await get(client, [keys[some]], SIZE) == ({}, {0})
        await running.at_baseline()


async def test_bad_input_is_a_sentence(call: Call, tmp_path: Path) -> None:
    async with running_store(tmp_path, 4 * MIB) as running:
        at = ("--store", running.address)
        for arguments, says in (
            (("ls", "xyz"), "hexadecimal"),
            (("get", "ab" * 17), "is too long: a key has"),
            (("drop", "abcd"), "32 hexadecimal digits"),
            (("drop",), "keys"),
            (("get", ""), "2 to 32 hexadecimal digits"),
            (("ls", "--limit", "0"), "--limit"),
            (
                ("ls", "--tenant", "t" * 129),
                "rejected the request: tenant: must have at most 128 bytes",
            ),
            (("verify", "all"), "extra argument"),
        ):
            code, _, err = await call(*arguments, *at)
            assert code == 2
            assert says in err
    code, _, err = await call("stat", *at)
    assert code == 1
    assert "No store is reachable" in err
    # gRPC would take 65537 for 1.
    for address in ("nowhere", "127.0.0.1:65537", "127.0.0.1:0", ":50051", "127.0.0.1:x"):
        code, _, err = await call("stat", "--store", address)
        assert code == 2
        assert "is not host:port with a port from 1 to 65535" in err
