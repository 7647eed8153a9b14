"""The tables of `baton kv`."""

from collections.abc import Iterable

from baton.cli.shared.render import size
from baton.cli.shared.table import TextTable
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.tiers import tier_name


def tiers_table(stats: Iterable[pb.StatResponse]) -> TextTable:
    """Return one row per store and tier."""
    table = TextTable(
        ("store", "tier", "used", "of", "objects", "evicted", "corrupt", "state"),
        right=frozenset({"used", "of", "objects", "evicted", "corrupt"}),
    )
    for stat in stats:
        for tier in stat.tiers:
            table.add(
                stat.store_id,
                tier_name(tier.tier),
                size(tier.used_bytes),
                size(tier.capacity_bytes),
                str(tier.objects),
                str(tier.evictions),
                str(tier.bad_objects),
                tier.failed or "ok",
            )
    return table


def tenants_table(stats: Iterable[pb.StatResponse]) -> TextTable:
    """Return one row per store, tenant and tier."""
    table = TextTable(
        ("store", "tenant", "tier", "used", "share"), right=frozenset({"used", "share"})
    )
    for stat in stats:
        for tenant in stat.tenants:
            table.add(
                stat.store_id,
                tenant.tenant or "(none)",
                tier_name(tenant.tier),
                size(tenant.used_bytes),
                size(tenant.share_bytes),
            )
    return table


def objects_table(objects: Iterable[tuple[str, pb.ObjectInfo]]) -> TextTable:
    """Return one row per object, of a store's address and an object there."""
    table = TextTable(
        ("key", "part", "bytes", "tiers", "tenant", "layout", "store"),
        right=frozenset({"bytes"}),
        shared=frozenset({"part", "tenant", "layout", "store"}),
    )
    for address, info in objects:
        table.add(
            info.key.hex(),
            f"{info.part.group}/{info.part.shard}/{info.part.part}",
            str(info.object_bytes),
            "+".join(map(tier_name, info.tiers)) + (" partial" if info.partial else ""),
            info.tenant,
            info.layout_id.hex(),
            address,
        )
    return table
