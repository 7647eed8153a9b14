"""The commands of `baton kv`."""

import json
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from google.protobuf.json_format import MessageToDict
from rich.console import Console

from baton.cli.inspect.kv.stores import CALL_SECONDS, RemoteStore, run
from baton.cli.inspect.kv.tables import objects_table, tenants_table, tiers_table
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cli.shared.options import StoreTarget
from baton.cli.shared.table import TextTable, show
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.client.client import KvStoreClient, StoreUnavailableError
from baton.kv.keys import KEY_BYTES
from baton.kv.objects import ObjectId

BATCH = 128
"""Objects that `verify` fetches at a time."""


def stat(target: StoreTarget, console: Console, as_json: bool) -> None:
    """Print the content of each store, tier and tenant."""

    async def act(stores: Sequence[RemoteStore]) -> list[pb.StatResponse]:
        return [await store.call("Stat", pb.StatRequest()) for store in stores]

    stats = run(target, act)
    if as_json:
        console.print_json(json.dumps([MessageToDict(s) for s in stats]))
        return
    show(console, tiers_table(stats))
    tenants = tenants_table(stats)
    if tenants.rows:
        show(console, tenants)


def ls(target: StoreTarget, console: Console, prefix: str, tenant: str | None, limit: int) -> None:
    """Print objects, in order of layout and key."""

    async def act(stores: Sequence[RemoteStore]) -> list[tuple[str, pb.ObjectInfo]]:
        rows: list[tuple[str, pb.ObjectInfo]] = []
        for store in stores:
            async for info in store.objects(key_prefix=_key(prefix), tenant=tenant):
                if len(rows) >= limit:
                    return rows
                rows.append((store.address, info))
        return rows

    show(console, objects_table(run(target, act)))


def get(target: StoreTarget, key: str, out: Path | None) -> None:
    """Write one object's bytes, verified, to a file or to standard output.

    Raises:
        CommandError: no such object, more than one, it is corrupt, or the file cannot be written.
    """
    if not key:
        raise CommandError(
            f"KEY must have 2 to {2 * KEY_BYTES} hexadecimal digits: see `baton kv ls`."
        )

    async def act(stores: Sequence[RemoteStore]) -> bytes:
        found: dict[ObjectId, tuple[RemoteStore, int]] = {}
        for store in stores:
            async for info in store.objects(key_prefix=_key(key)):
                found[_object_id(info)] = (store, info.object_bytes)
        if not found:
            raise CommandError(
                f"no object has a key that starts with {key}: list the keys with `baton kv ls`.",
                EXIT_FAILED,
            )
        if len(found) > 1:
            raise CommandError(
                f"{len(found)} objects have a key that starts with {key}: enter more digits, or "
                "list "
                f"them with `baton kv ls {key}`.",
                EXIT_FAILED,
            )
        ((name, (store, length)),) = found.items()
        if not name.is_block:
            raise CommandError(
                "this object is not the first part of its block; other parts cannot be read.",
                EXIT_FAILED,
            )
        before = await _corrupt(store)
        async with _client(store) as client:
            copies, _ = await _fetch(client, [name], length)
        if not copies:
            corrupt = await _corrupt(store) > before
            reason = (
                "the object is corrupt: the store dropped it."
                if corrupt
                else "the store evicted the object during the read."
            )
            raise CommandError(reason, EXIT_FAILED)
        return copies[0]

    data = run(target, act)
    if out is None:
        sys.stdout.buffer.write(data)
        return
    try:
        out.write_bytes(data)
    except OSError as error:
        raise CommandError(f"--out {out} cannot be written: {error.strerror}.") from error


def drop(target: StoreTarget, console: Console, keys: Sequence[str]) -> None:
    """Drop objects by their full keys, from every selected store."""
    packed = b"".join(_key(key) for key in keys)
    if len(packed) != KEY_BYTES * len(keys):
        raise CommandError(
            f"each key must have {2 * KEY_BYTES} hexadecimal digits: see `baton kv ls`."
        )

    async def act(stores: Sequence[RemoteStore]) -> int:
        responses = [await store.call("Drop", pb.DropRequest(keys=packed)) for store in stores]
        return sum(response.dropped for response in responses)

    console.print(f"dropped {run(target, act)} objects", highlight=False)


def verify(target: StoreTarget, console: Console) -> None:
    """Read every object of every tier and check its digest; the store drops corrupt ones.

    Raises:
        CommandError: some were corrupt.
    """

    async def act(stores: Sequence[RemoteStore]) -> list[tuple[str, int, int, int]]:
        return [(store.address, *await _verify(store)) for store in stores]

    made = TextTable(
        ("store", "valid", "corrupt", "evicted"), right=frozenset({"valid", "corrupt", "evicted"})
    )
    total = 0
    for address, valid, corrupt, evicted in run(target, act):
        made.add(address, str(valid), str(corrupt), str(evicted))
        total += corrupt
    show(console, made)
    if total:
        raise CommandError(f"found and dropped {total} corrupt objects.", EXIT_FAILED)


async def _verify(store: RemoteStore) -> tuple[int, int, int]:
    before = await _corrupt(store)
    groups: dict[tuple[bytes, int, int], list[ObjectId]] = {}
    total = valid = 0
    async for info in store.objects():
        if _object_id(info).is_block:
            total += 1
            of = (info.layout_id, info.object_bytes, info.part.group)
            groups.setdefault(of, []).append(_object_id(info))
    async with _client(store) as client:
        for (_, length, _), names in groups.items():
            for at in range(0, len(names), BATCH):
                valid += (await _fetch(client, names[at : at + BATCH], length, keep=False))[1]
    corrupt = await _corrupt(store) - before
    return valid, corrupt, max(0, total - valid - corrupt)


async def _corrupt(store: RemoteStore) -> int:
    stat = await store.call("Stat", pb.StatRequest())
    return sum(tier.bad_objects for tier in stat.tiers)


async def _fetch(
    client: KvStoreClient, names: Sequence[ObjectId], length: int, *, keep: bool = True
) -> tuple[list[bytes], int]:
    """Return the copies whose digest is correct, none unless `keep`, and their number."""
    copies, valid = [], 0
    try:
        keys = [name.key for name in names]
        fetching = client.fetch(keys, names[0].layout_id, length, group=names[0].group)
        try:
            async for batch in fetching:
                for fetched in batch:
                    copy = bytearray(fetched.nbytes)
                    if fetched.copy_to(memoryview(copy)):
                        valid += 1
                        if keep:
                            copies.append(bytes(copy))
        finally:
            await fetching.aclose()
    except StoreUnavailableError as error:
        raise CommandError(f"the store became unavailable: {error}", EXIT_FAILED) from error
    return copies, valid


@asynccontextmanager
async def _client(store: RemoteStore) -> AsyncIterator[KvStoreClient]:
    async with KvStoreClient(lambda: store.address, "baton-kv", secrets.token_hex(8)) as client:
        if not await client.wait_connected(CALL_SECONDS):
            raise CommandError(
                f"the store at {store.address} does not accept connections.", EXIT_FAILED
            )
        yield client


def _object_id(info: pb.ObjectInfo) -> ObjectId:
    part = info.part
    return ObjectId(info.layout_id, info.key, part.group, part.shard, part.part)


def _key(text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError as error:
        raise CommandError(
            f"{text!r} is not a key: it must have an even number of hexadecimal digits."
        ) from error
    if len(key) > KEY_BYTES:
        raise CommandError(f"{text!r} is too long: a key has {2 * KEY_BYTES} hexadecimal digits.")
    return key
