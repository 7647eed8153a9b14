"""A fleet as a router sees it, and queries for placements."""

import random

from baton.internal.v1 import router_pb2
from baton.kv.cuts import CutRules
from baton.kv.keys import pack
from baton.kv.layout import GroupKind, KvGroup
from services.router.admission.waiting import QueueSettings
from services.router.prefix_index.blocks.table import choose_table
from services.router.prefix_index.holders import DRAM, ENGINE
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.tickets import TicketTable

LAYOUT = b"L" * 16
FULL = (KvGroup(GroupKind.FULL, 65_536),)
GROUPS: dict[str, tuple[KvGroup, ...]] = {
    "1": (),
    "3": (*FULL, KvGroup(GroupKind.WINDOW, 65_536, 128), KvGroup(GroupKind.STATE, 65_536)),
}
"""Groups of layers by how many there are."""
NO_GATE = QueueSettings(gate=3600.0)
"""No request waits, as the reports of these workers are never renewed."""
BLOCKS = 64
CHAINS = 2_000
Roles = list[Role]
_SPLIT: Roles = [Role.PREFILL] * 4 + [Role.DECODE] * 4
FLEETS: dict[str, Roles] = {
    "4 prefill + 4 decode": _SPLIT,
    "32 prefill + 32 decode": [Role.PREFILL] * 32 + [Role.DECODE] * 32,
    "8 combined": [Role.COMBINED] * 8,
}


def chains(count: int = CHAINS) -> list[list[bytes]]:
    """Return the block keys of prompts."""
    draw = random.Random(1)
    return [[draw.randbytes(16) for _ in range(BLOCKS)] for _ in range(count)]


def fleet(roles: Roles, prompts: int = CHAINS, groups: tuple[KvGroup, ...] = ()) -> Fleet:
    """Return a fleet with a worker of each role, a store for every four, and their blocks.

    Args:
        roles: the workers' roles.
        prompts: prompts of which 48 of 64 blocks are in a store, 16 in another, and 32 at a worker.
        groups: of the layout; holders have a cut at these blocks. Empty: one of full attention.
    """
    stores = max(2, len(roles) // 4)
    made = Fleet(PrefixIndex(table=choose_table().taken), TicketTable("bench"))
    made.set_layouts([ModelLayout("m", LAYOUT, 16, 65_536, groups)])
    rules = CutRules(groups or FULL, 16)
    for number in range(stores):
        made.put(InstanceState(f"store-{number}", Role.KVSTORE, address="h:1"))
    for number, role in enumerate(roles):
        worker = f"worker-{number}"
        made.put(
            InstanceState(
                worker,
                role,
                address="h:2",
                model="m",
                layout_id=LAYOUT,
                store_id=f"store-{number % stores}",
            )
        )
        made.apply_report(
            LoadReport(
                worker,
                running=number % 5,
                pending_prompt_tokens=number * 100,
                free_pages=5_000,
                total_pages=10_000,
                prefill_tokens_per_second=5_000,
                decode_step_seconds=0.02,
                fetch_bytes_per_second=1e9,
            ),
            0.0,
        )
    for number, chain in enumerate(chains(prompts)):
        near, far = f"store-{number % stores}", f"store-{(number + 1) % stores}"
        worker = f"worker-{number % len(roles)}"
        for holder, tier, blocks in ((near, DRAM, 48), (far, DRAM, 16), (worker, ENGINE, 32)):
            for group, needed in enumerate(rules.needed(blocks * 16)):
                made.index.add_blocks(holder, tier, chain[needed.start : needed.stop], group)
    return made


def query(number: int, chain: list[bytes]) -> router_pb2.PlaceQuery:
    """Return a query."""
    asked = router_pb2.PlaceQuery(
        correlation_id=number,
        chains=[router_pb2.Chain(layout_id=LAYOUT, keys=pack(chain), block_tokens=16)],
        prompt_tokens=BLOCKS * 16 + 5,
        max_tokens=256,
        n=1,
    )
    asked.context.model = "m"
    asked.context.request_id = f"request-{number}"
    return asked
