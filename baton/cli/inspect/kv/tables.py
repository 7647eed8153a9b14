"""The tables of `baton kv`."""

from collections.abc import Iterable

from baton.cli.shared.render import size
from baton.cli.shared.table import TextTable
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.tiers import tier_name
from baton.kv.wire.groups import group_text


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
    """Return one row per object, of a store's address and an object there.

    For layouts with groups, with the group and the prefix that can be continued behind the block.
    """
    objects = list(objects)
    grouped = any(info.HasField("group") for _, info in objects)
    table = TextTable(
        (
            *("key", "part"),
            *(("group", "prefix") if grouped else ()),
            *("bytes", "tiers", "tenant", "layout", "store"),
        ),
        right=frozenset({"prefix", "bytes"}),
        shared=frozenset({"part", "group", "prefix", "tenant", "layout", "store"}),
    )
    for address, info in objects:
        table.add(
            info.key.hex(),
            f"{info.part.group}/{info.part.shard}/{info.part.part}",
            *((_group(info), _prefix(info)) if grouped else ()),
            str(info.object_bytes),
            "+".join(map(tier_name, info.tiers)) + (" partial" if info.partial else ""),
            info.tenant,
            info.layout_id.hex(),
            address,
        )
    return table


def _group(info: pb.ObjectInfo) -> str:
    return group_text(info.group.kind, info.group.span_tokens)


def _prefix(info: pb.ObjectInfo) -> str:
    """Return the prefix that can be continued behind an object's block, in tokens."""
    if info.unneeded:
        return "unneeded"
    return str(info.cut_tokens) if info.cut_tokens else ""
