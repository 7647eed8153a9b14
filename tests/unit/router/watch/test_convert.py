"""What workers and discovery say reaches the fleet as it was said."""

from baton.internal.v1 import cluster_pb2, kvevents_pb2, worker_pb2
from services.router.prefix_index import holders
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.watch.convert import (
    ROLES,
    instance_from_proto,
    layout_from_proto,
    report_from_proto,
)


def test_tiers_have_the_numbers_of_kv_events() -> None:
    numbers = kvevents_pb2.Tier.values()
    assert sorted(holders.TIERS) == [one for one in numbers if one != kvevents_pb2.TIER_UNSPECIFIED]
    assert holders.ENGINE == kvevents_pb2.TIER_ENGINE
    assert holders.DRAM == kvevents_pb2.TIER_DRAM
    assert holders.DISK == kvevents_pb2.TIER_DISK


def test_roles_that_place_nothing_and_hold_nothing_are_not_watched() -> None:
    assert set(ROLES.values()) == set(Role)
    others = set(cluster_pb2.Role.values()) - set(ROLES)
    assert others == {
        cluster_pb2.ROLE_UNSPECIFIED,
        cluster_pb2.ROLE_FRONTEND,
        cluster_pb2.ROLE_ROUTER,
    }


def test_an_instance_keeps_what_placements_need() -> None:
    message = cluster_pb2.Instance(
        id="w",
        incarnation="7",
        role=cluster_pb2.ROLE_COMBINED,
        address="h:1",
        layout_id=b"L",
        model="m",
        store_id="s",
        draining=True,
        tokenizer_digest=b"t",
        adapters=[cluster_pb2.Adapter(name="sql", digest=b"d")],
    )
    assert instance_from_proto(message) == InstanceState(
        "w", Role.COMBINED, "7", "h:1", "m", b"L", "s", b"t", frozenset({("sql", b"d")}), True
    )


def test_a_card_says_how_blocks_are_cut() -> None:
    card = cluster_pb2.ModelCard(name="m", layout_id=b"L", block_tokens=16, block_bytes=1 << 40)
    assert layout_from_proto(card) == ModelLayout("m", b"L", 16, 1 << 40)


def test_a_worker_that_does_not_say_what_it_will_find_is_behind_by_all_that_waits() -> None:
    report = report_from_proto(worker_pb2.LoadReport(pending_prompt_tokens=10))
    assert report.pending_prompt_tokens == 10
    nonsense = worker_pb2.LoadReport(pending_prompt_tokens=10, pending_cached_tokens=11)
    assert report_from_proto(nonsense).pending_prompt_tokens == 0


def test_a_report_keeps_every_number() -> None:
    message = worker_pb2.LoadReport(
        instance_id="w",
        incarnation="7",
        running=1,
        waiting=2,
        pending_prompt_tokens=10,
        pending_cached_tokens=7,
        free_pages=4,
        total_pages=5,
        prefill_tokens_per_second=6,
        decode_step_seconds=7,
        fetch_bytes_per_second=8,
        tickets=["a", "b"],
        draining=True,
        chunk_tokens=9,
        decode_chunk_tokens=10,
        max_running=11,
        max_sequences=12,
        reserved_pages=13,
        ticket_sequences=[1, 2],
        resident_adapters=[b"d"],
        adapter_slots=14,
        adapter_load_seconds=15,
    )
    report = report_from_proto(message)
    names = ("tickets", "ticket_sequences", "resident_adapters")
    lists = {name: tuple(getattr(report, name)) for name in names}
    assert report._replace(**lists) == LoadReport(
        "w",
        "7",
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        ("a", "b"),
        True,
        9,
        10,
        11,
        12,
        13,
        (1, 2),
        (b"d",),
        14,
        15,
    )
