"""Every placement of a request is listed with its costs, and why it is not chosen."""

import pytest

from services.router.policy.costs import PromptTurn
from services.router.policy.explanation import CandidateCosts, Exclusion
from services.router.policy.placement_service import Chain, PlacementRequest, PlacementService
from services.router.prefix_index.holders import DRAM, ENGINE
from services.router.prefix_index.index import PrefixIndex
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.tickets import TicketTable

LAYOUT = b"L" * 16
BLOCK = 10
CHAIN = [number.to_bytes(16, "little") for number in range(40)]


def fleet(*workers: tuple[str, Role], **reports: dict[str, object]) -> Fleet:
    """Make workers of 100 tokens per second, each beside a store of its own.

    A chunk takes 40 ms, and a step beside it 9.
    """
    made = Fleet(PrefixIndex(), TicketTable("r"))
    made.set_layouts([ModelLayout("m", LAYOUT, BLOCK, 1_000_000)])
    for name, role in workers:
        made.put(InstanceState(f"store-{name}", Role.KVSTORE))
        made.put(
            InstanceState(
                name,
                role,
                model="m",
                layout_id=LAYOUT,
                store_id=f"store-{name}",
                tokenizer_digest=b"t",
                draining=name.endswith("draining"),
            )
        )
        fields = {
            "free_pages": 1000,
            "total_pages": 1000,
            "prefill_tokens_per_second": 100.0,
            "decode_step_seconds": 0.009,
            "chunk_tokens": 400,
            "decode_chunk_tokens": 4,
            "fetch_bytes_per_second": 1e9,
            **reports.get(name, {}),
        }
        made.apply_report(LoadReport(name, **fields), 0.0)  # type: ignore[arg-type]
    return made


def asked(**fields: object) -> PlacementRequest:
    request = PlacementRequest("m", 400, 10, [Chain(LAYOUT, b"".join(CHAIN))])
    return request._replace(**fields)  # type: ignore[arg-type]


def by_worker(rows: list[CandidateCosts]) -> dict[str, CandidateCosts]:
    """Return candidates by their workers, `prefill+decode` where there are two."""
    return {"+".join(filter(None, row[1::-1])): row for row in rows}


def test_each_worker_has_its_costs_and_the_chosen_one_is_that_of_the_placement() -> None:
    made = fleet(
        ("c1", Role.COMBINED),
        ("c2", Role.COMBINED),
        ("d1", Role.DECODE),
        ("p1", Role.PREFILL),
        d1={"pending_prompt_tokens": 100},
        c2={"running": 3},
    )
    made.index.add_blocks("c2", ENGINE, CHAIN[:10])
    made.index.add_blocks("store-c2", DRAM, CHAIN[:20])
    service = PlacementService(made)
    rows = service.explain(asked(), 0.0, {"c1": PromptTurn(0.5, 2)})
    found = by_worker(rows)
    assert set(found) == {"c1", "c2", "d1", "p1+c1", "c1+d1", "c2+d1"}
    assert [row.chosen for row in rows] == [True] + [False] * 5
    plan = service.plan(asked(), 0.0, {"c1": PromptTurn(0.5, 2)})
    assert (rows[0].prefill_worker or rows[0].decode_worker) == plan.worker_id
    one = found["c2"]
    assert (one.engine_tokens, one.local_tokens, one.remote_tokens) == (100, 100, 0)
    assert one.uncached_tokens == 200
    assert one.prefill_seconds == pytest.approx(200 / 4 * 0.049)
    assert one.step_seconds == pytest.approx(0.049)
    assert (one.needed_pages, one.free_pages, one.total_pages) == (41, 1000, 1000)
    other = found["c1"]
    assert (other.queue_seconds, other.delay_seconds) == (0.5, 2.0)
    assert other.remote_tokens == 200
    assert found["d1"].queue_seconds == 1.0


@pytest.mark.parametrize(
    ("worker", "fields", "why"),
    [
        ("c2", {"excluded": frozenset({"c2"})}, Exclusion.EXCLUDED),
        ("c-draining", {}, Exclusion.DRAINING),
        ("c3", {}, Exclusion.STALE),
        ("c4", {}, Exclusion.MEMORY),
        ("c5", {}, Exclusion.ITL),
        ("p1", {}, Exclusion.UNPAIRED),
        ("c2", {"tokenizer_digest": b"other"}, Exclusion.TOKENIZER),
        ("c2", {"tokenizer_digest": b"t", "adapter": ("a", b"d")}, Exclusion.ADAPTER),
    ],
)
def test_what_is_out_says_why(worker: str, fields: dict[str, object], why: Exclusion) -> None:
    names = ("c1", "c2", "c-draining", "c3", "c4", "c5")
    made = fleet(
        *((name, Role.COMBINED) for name in names),
        ("p1", Role.PREFILL),
        c4={"total_pages": 10},
        c5={"running": 1, "decode_step_seconds": 0.011},
    )
    made.mark_stale("c3")
    made.remove("store-p1")
    rows = PlacementService(made).explain(asked(**fields), 0.0)
    assert len(rows) == 7
    assert by_worker(rows)[worker].exclusion is why
    assert [row.chosen for row in rows] == [row.exclusion is None for row in rows[:1]] + [False] * 6


def test_nothing_is_chosen_where_nothing_may_be_used() -> None:
    made = fleet(("c1", Role.COMBINED), ("c2-draining", Role.COMBINED))
    rows = PlacementService(made).explain(asked(excluded=frozenset({"c1"})), 0.0)
    assert [(row.decode_worker, row.exclusion) for row in rows] == [
        ("c1", Exclusion.EXCLUDED),
        ("c2-draining", Exclusion.DRAINING),
    ]
