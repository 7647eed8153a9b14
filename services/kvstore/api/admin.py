"""Stat, List and Drop: a store's state for operators and metrics."""

from collections.abc import Iterator

from baton.errors import invalid_field
from baton.internal.v1 import kvevents_pb2
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.keys import KEY_BYTES, unpack
from baton.kv.layout import LAYOUT_ID_BYTES
from baton.kv.objects import MAX_READ_KEYS, ObjectId
from baton.kv.wire.groups import group_message
from services.kvstore.api.fields import tenant_of
from services.kvstore.store import Store

MAX_TENANTS = 1000
"""Most tenants in a Stat, the largest ones."""
MAX_PAGE = 10_000
DEFAULT_PAGE = 1000


def stat(store: Store) -> pb.StatResponse:
    """Return exact counts."""
    stats, disk = store.table.stats(), store.disk
    answer = pb.StatResponse(
        store_id=store.store_id,
        epoch=store.log.epoch,
        capacity_bytes=stats.capacity_bytes,
        committed_bytes=stats.committed_bytes,
        objects=stats.objects,
        leases=stats.leases,
        reservations=stats.reservations,
        quarantined=stats.quarantined,
        waiters=store.waits.waiters,
        sessions=store.streams,
        hits=store.waits.hits,
        misses=store.waits.misses,
        bad_objects=stats.bad_objects,
        evictions=stats.evictions,
    )
    answer.tiers.add(
        tier=kvevents_pb2.TIER_DRAM,
        capacity_bytes=stats.capacity_bytes,
        used_bytes=stats.capacity_bytes - store.table.free_bytes,
        objects=stats.objects,
        evictions=stats.evictions,
        bad_objects=stats.bad_objects,
    )
    policies = [(kvevents_pb2.TIER_DRAM, store.table.policy.shares())]
    if store.disk_failed or disk is not None:
        answer.tiers.add(
            tier=kvevents_pb2.TIER_DISK,
            capacity_bytes=disk.index.capacity_bytes if disk is not None else 0,
            used_bytes=disk.index.used_bytes if disk is not None else 0,
            objects=len(disk.index) if disk is not None else 0,
            evictions=disk.index.evictions if disk is not None else 0,
            bad_objects=disk.counts.bad_objects if disk is not None else 0,
            failed=store.disk_failed,
        )
    if disk is not None:
        policies.append((kvevents_pb2.TIER_DISK, disk.index.policy.shares()))
    tenants = [
        pb.TenantStat(tenant=tenant, tier=tier, used_bytes=used, share_bytes=int(share))
        for tier, shares in policies
        for tenant, used, share in shares
    ]
    tenants.sort(key=lambda tenant: -tenant.used_bytes)
    answer.tenants.extend(tenants[:MAX_TENANTS])
    return answer


def list_objects(store: Store, request: pb.ListRequest) -> pb.ListResponse:
    """Return a page of objects. Walks over all objects of the store.

    Raises:
        BatonError: a field is out of its range.
    """
    if len(request.key_prefix) > KEY_BYTES:
        raise invalid_field("key_prefix", f"must have at most {KEY_BYTES} bytes")
    if request.layout_id and len(request.layout_id) != LAYOUT_ID_BYTES:
        raise invalid_field("layout_id", f"must have {LAYOUT_ID_BYTES} bytes")
    tenant_of(request.tenant)
    if not 0 <= request.limit <= MAX_PAGE:
        raise invalid_field("limit", f"must be 0 to {MAX_PAGE}")
    after = _unpack_page(request.page) if request.page else None
    limit = request.limit or DEFAULT_PAGE
    chosen = sorted(
        object_id
        for object_id in _all(store)
        if object_id.key.startswith(request.key_prefix)
        and request.layout_id in (b"", object_id.layout_id)
        and (after is None or object_id > after)
        and (not request.HasField("tenant") or _tenant(store, object_id) == request.tenant)
    )
    answer = pb.ListResponse(objects=[_info(store, object_id) for object_id in chosen[:limit]])
    if len(chosen) > limit:
        answer.next_page = _pack_page(chosen[limit - 1])
    return answer


def drop_objects(store: Store, request: pb.DropRequest) -> pb.DropResponse:
    """Drop objects in every tier.

    Raises:
        BatonError: a field is out of its range.
    """
    if request.layout_id and len(request.layout_id) != LAYOUT_ID_BYTES:
        raise invalid_field(
            "layout_id", f"must have {LAYOUT_ID_BYTES} bytes, or none for all layouts"
        )
    if not request.keys or len(request.keys) % KEY_BYTES:
        raise invalid_field("keys", f"must be a positive multiple of {KEY_BYTES} bytes")
    if len(request.keys) > MAX_READ_KEYS * KEY_BYTES:
        raise invalid_field("keys", f"must be at most {MAX_READ_KEYS}")
    keys = set(unpack(request.keys))
    named = [
        object_id
        for object_id in _all(store)
        if object_id.key in keys and request.layout_id in (b"", object_id.layout_id)
    ]
    dropped = sum(store.drop(object_id) for object_id in named)
    return pb.DropResponse(dropped=dropped)


def _all(store: Store) -> Iterator[ObjectId]:
    """Yield every object once."""
    for slot in store.table.objects():
        yield slot.object_id
    if store.disk is not None:
        for entry in store.disk.index.entries():
            if entry.readable and store.table.get(entry.object_id) is None:
                yield entry.object_id


def _tenant(store: Store, object_id: ObjectId) -> str:
    found = store.table.get(object_id) or (store.disk and store.disk.index.get(object_id))
    return found.tenant if found else ""


def _info(store: Store, object_id: ObjectId) -> pb.ObjectInfo:
    slot = store.table.get(object_id)
    entry = store.disk.index.get(object_id) if store.disk is not None else None
    found = slot or entry
    tiers = [kvevents_pb2.TIER_DRAM] if slot is not None else []
    if entry is not None and entry.readable:
        tiers.append(kvevents_pb2.TIER_DISK)
    tracker = store.cuts.tracker
    group = tracker.group(object_id)
    return pb.ObjectInfo(
        layout_id=object_id.layout_id,
        key=object_id.key,
        part=object_id.message(),
        object_bytes=found.object_bytes if found is not None else 0,
        tenant=found.tenant if found is not None else "",
        tiers=tiers,
        leases=slot.leases if slot is not None else 0,
        partial=slot is not None and slot.partial,
        group=None if group is None else group_message(group),
        cut_tokens=tracker.cut_tokens(object_id),
        unneeded=object_id in tracker.unneeded,
    )


def _pack_page(object_id: ObjectId) -> bytes:
    layout_id, key, *numbers = object_id
    return layout_id + key + b"".join(number.to_bytes(4, "big") for number in numbers)


def _unpack_page(page: bytes) -> ObjectId:
    head = LAYOUT_ID_BYTES + KEY_BYTES
    if len(page) != head + 12:
        raise invalid_field("page", "must be the next_page of an earlier response")
    group, shard, part = (
        int.from_bytes(page[at : at + 4], "big") for at in range(head, head + 12, 4)
    )
    return ObjectId(page[:LAYOUT_ID_BYTES], page[LAYOUT_ID_BYTES:head], group, shard, part)
