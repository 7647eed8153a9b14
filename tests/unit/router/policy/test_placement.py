"""Placement takes the lowest predicted time to first token among what may be used."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import BatonError, Reason
from services.router.policy.costs import Held, PlacementQuery, Policy, PromptTurn
from services.router.policy.explanation import Exclusion, explain
from services.router.policy.placement import Decision, choose
from services.router.prefix_index.holders import DRAM, ENGINE
from services.router.prefix_index.index import PrefixIndex
from services.router.state.columns import WorkerColumns
from services.router.state.rates import WorkerRates
from services.router.state.room import room
from services.router.state.worker import Worker
from tests.support.examples import examples
from tests.support.router.placement import beside, make_worker, place

LAYOUT, OTHER_LAYOUT = b"L" * 16, b"M" * 16
BLOCK = 16
CHAIN = [i.to_bytes(16, "little") for i in range(64)]
PROMPT = len(CHAIN) * BLOCK
RATES = WorkerRates(
    prefill_tokens_per_second=1_000,
    decode_step_seconds=0.01,
    remote_bytes_per_second=1e8,
    local_bytes_per_second=1e9,
)


def worker(
    id: str,  # noqa: A002  # as in Worker
    *,
    can_prefill: bool = False,
    can_decode: bool = False,
    store: str = "store-a",
    layout: bytes = LAYOUT,
    rates: WorkerRates = RATES,
    running: int = 0,
    waiting: int = 0,
    chunk: int = 32,
    pending: int = 0,
    free: int = 1000,
    total: int = 1000,
    draining: bool = False,
    stale: bool = False,
) -> Worker:
    return make_worker(
        id=id,
        incarnation="1",
        address="127.0.0.1:1",
        can_prefill=can_prefill,
        can_decode=can_decode,
        layout_id=layout,
        store_id=store,
        block_tokens=BLOCK,
        block_bytes=100_000,
        rates=rates,
        running=running,
        waiting=waiting,
        pending_prompt_tokens=pending,
        free_pages=free,
        total_pages=total,
        decode_chunk_tokens=chunk,
        draining=draining,
        stale=stale,
    )


P1, P2 = worker("p1", can_prefill=True), worker("p2", can_prefill=True, store="store-b")
D1, D2 = worker("d1", can_decode=True), worker("d2", can_decode=True, store="store-b")


def query(
    index: PrefixIndex | None = None, *, prompt: int = PROMPT, **fields: object
) -> PlacementQuery:
    matches = {LAYOUT: index.match(CHAIN)} if index is not None else {}
    return replace(PlacementQuery(prompt_tokens=prompt, max_tokens=64, matches=matches), **fields)


def names(decision: Decision) -> tuple[str | None, str]:
    prefill = decision.prefill_worker
    return prefill.id if prefill is not None else None, decision.decode_worker.id


# Where it is read


def test_a_long_prompt_is_read_elsewhere_when_it_would_be_read_slowly_beside_streams() -> None:
    busy = replace(D1, running=8)
    assert names(place(query(), [P1, busy])) == ("p1", "d1")


def test_a_prefill_worker_reads_where_it_makes_no_difference() -> None:
    for seed in range(50):
        assert names(place(query(prompt=20, seed=seed), [P1, D1])) == ("p1", "d1")


def test_a_prompt_that_is_cached_at_the_decode_worker_is_read_there() -> None:
    index = PrefixIndex()
    index.add_blocks("d1", ENGINE, CHAIN)
    decision = place(query(index), [P1, replace(D1, running=8)])
    assert names(decision) == (None, "d1")
    assert decision.prefill.cached_tokens == PROMPT - 1
    assert decision.ttft.transfer_seconds == 0


def test_local_prefill_wins_when_prefill_workers_are_behind() -> None:
    behind = replace(P1, pending_prompt_tokens=50_000)
    assert names(place(query(), [behind, D1])) == (None, "d1")


def test_only_decode_workers_read_by_themselves() -> None:
    decision = place(query(), [D1, D2])
    assert decision.prefill_worker is None
    assert decision.sources == ()
    assert "no other worker can prefill" in decision.reason


def test_the_prefill_worker_whose_store_has_the_prefix_reads() -> None:
    index = PrefixIndex()
    index.add_blocks("store-b", DRAM, CHAIN[:48])
    decision = place(query(index), [P1, P2, replace(D1, running=4)])
    assert names(decision) == ("p2", "d1")
    assert decision.prefill.cached_tokens == 48 * BLOCK


def test_a_held_prefix_loses_to_an_idle_worker_when_its_queue_is_longer_than_computing() -> None:
    index = PrefixIndex()
    index.add_blocks("p2", ENGINE, CHAIN[:8])
    behind = replace(P2, pending_prompt_tokens=10_000)
    assert names(place(query(index), [P1, behind, replace(D1, running=4)]))[0] == "p1"


def test_a_combined_worker_is_not_paired_with_itself() -> None:
    both = worker("c1", can_prefill=True, can_decode=True, running=8)
    assert names(place(query(), [both])) == (None, "c1")


def test_combined_workers_never_read_for_each_other() -> None:
    """Each could hold the pages that the other's prefill needs, and none would go on."""
    busy = worker("c1", can_prefill=True, can_decode=True, running=30)
    full = worker("c2", can_prefill=True, can_decode=True, free=10)
    assert place(query(), [busy, full]).prefill_worker is None
    always = Policy(disaggregation="always")
    assert place(query(), [busy, full], always).prefill_worker is None


def test_an_idle_combined_worker_reads_for_a_busy_decode_worker() -> None:
    both = worker("c1", can_prefill=True, can_decode=True, free=10)  # no room to decode here
    busy = replace(D1, running=16)
    assert names(place(query(), [both, busy])) == ("c1", "d1")


def test_a_stream_that_goes_on_is_read_where_it_is_written_when_little_is_uncached() -> None:
    index = PrefixIndex()
    index.add_blocks("store-a", DRAM, CHAIN)
    assert names(place(query(index, output_tokens=100), [P1, replace(D1, running=8)])) == (
        None,
        "d1",
    )


def test_a_stream_that_goes_on_is_read_elsewhere_when_much_is_uncached() -> None:
    policy = Policy(resume_remote_min_tokens=512)
    decision = place(query(output_tokens=4), [P1, replace(D1, running=8)], policy)
    assert names(decision) == ("p1", "d1")


# Where it is written


def test_the_less_crowded_decode_worker_writes() -> None:
    assert names(place(query(), [replace(D1, running=20), D2]))[1] == "d2"


def test_the_less_crowded_decode_worker_also_takes_what_is_read_elsewhere() -> None:
    one, other = replace(D1, running=20), replace(beside(D2, "store-a"), running=60)
    for writers in ((one, other), (other, one)):
        assert names(place(query(), [P1, *writers])) == ("p1", "d1")


def test_the_decode_worker_beside_the_prefill_worker_is_nearer() -> None:
    slow = RATES._replace(remote_bytes_per_second=1e7)
    workers = [replace(w, rates=slow, running=8 if w.can_decode else 0) for w in (P1, D1, D2)]
    assert names(place(query(), workers)) == ("p1", "d1")


def test_a_worker_without_free_pages_is_a_worse_place() -> None:
    assert names(place(query(), [replace(D1, free_pages=3, running=4), D2]))[1] == "d2"


def test_growth_counts_for_every_choice() -> None:
    # 64 shared blocks, then 4 for each choice's 64 tokens.
    tight = worker("d1", can_decode=True, total=70)
    assert names(place(query(n=1), [tight])) == (None, "d1")
    with pytest.raises(BatonError) as refused:
        place(query(n=2), [tight])
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_FIELD, "n")
    assert "2 choices exceed the KV memory of every worker" in str(refused.value)


def test_choices_that_no_worker_could_ever_hold_are_refused_at_once() -> None:
    few, more = (
        replace(one, max_sequences=most, room=room(4, most, 0, 1_000))
        for one, most in ((D1, 6), (D2, 9))
    )
    assert names(place(query(n=9), [few, more]))[1] == "d2"
    with pytest.raises(BatonError, match=r"10 choices exceed the limit of every worker .9, ") as no:
        place(query(n=10), [few, more])
    assert (no.value.http_status, no.value.field) == (400, "n")


# Room for all choices


def test_a_worker_with_room_is_chosen_and_without_one_none_goes() -> None:
    full = replace(D1, room=room(8, 16, sequences=4, free_pages=1_000))
    free = replace(D2, room=room(8, 16, sequences=0, free_pages=1_000), pending_prompt_tokens=9_000)
    columns = WorkerColumns([full, free])
    assert choose(query(n=4), columns).best.decode_worker is full
    # Two in eight are a quarter of the batch: of more choices the rest would wait at the worker.
    crowded = replace(full, room=room(8, 16, sequences=7, free_pages=1_000))
    chosen = choose(query(n=4), WorkerColumns([crowded, free]))
    assert (chosen.best.decode_worker, chosen.has_room) == (free, True)
    chosen = choose(query(n=4), WorkerColumns([crowded]))
    assert (chosen.best.decode_worker, chosen.has_room) == (crowded, False)
    assert choose(query(n=1), WorkerColumns([crowded])).has_room


def test_room_that_is_kept_for_another_request_is_none() -> None:
    one = replace(D1, room=room(8, 16, sequences=4, free_pages=1_000))
    held = {"d1": Held(4, 100)}
    assert choose(query(n=1), WorkerColumns([one])).has_room
    assert not choose(replace(query(n=1), held=held), WorkerColumns([one])).has_room
    other = replace(D2, room=one.room, pending_prompt_tokens=9_000)
    asked = replace(query(n=1), held=held)
    assert choose(asked, WorkerColumns([one, other])).best.decode_worker is other


def test_pages_and_places_are_room_too() -> None:
    needed = choose(query(n=2), WorkerColumns([D1])).best.decode_pages
    for pages, fits in ((needed, True), (needed - 1, False)):
        one = replace(D1, room=room(8, 16, sequences=0, free_pages=pages))
        assert choose(query(n=2), WorkerColumns([one])).has_room is fits
    # Choices of a large request need not run at once, but each has to find a place.
    for sequences, fits in ((6, True), (7, False)):
        one = replace(D1, room=room(8, 12, sequences=sequences, free_pages=9_999))
        assert choose(query(n=6), WorkerColumns([one])).has_room is fits


def test_a_prefill_worker_without_a_place_takes_no_prompt() -> None:
    full = replace(P1, room=room(4, 8, sequences=8, free_pages=1_000))
    chosen = choose(query(), WorkerColumns([full, D1]))
    assert (chosen.best.prefill_worker, chosen.has_room) == (full, False)
    other, busy = worker("p3", can_prefill=True), replace(D1, pending_prompt_tokens=9_000)
    chosen = choose(query(), WorkerColumns([full, other, busy]))
    assert (chosen.best.prefill_worker, chosen.has_room) == (other, True)


# Who goes first, and how long streams may take


def test_kv_comes_while_a_prompt_waits() -> None:
    index = PrefixIndex()
    index.add_blocks("store-b", DRAM, CHAIN[:32])
    behind = replace(D1, pending_prompt_tokens=20)
    # 32 blocks take 1 ms each, of which 20 are hidden.
    assert place(query(index), [behind]).ttft[:2] == pytest.approx((0.02, 0.012))


def test_a_turn_is_when_a_prompt_begins_and_half_of_what_it_delays_counts() -> None:
    behind = replace(D1, pending_prompt_tokens=2_000)
    workers = [behind, replace(D2, pending_prompt_tokens=1_000)]
    assert names(place(query(), workers)) == (None, "d2")
    decision = place(query(turns={"d1": PromptTurn(-2.0, 1)}), workers)
    assert names(decision) == (None, "d1")
    assert decision.ttft.queue_seconds == 0
    # 1.024 s of computing and half of it for each of 3 that wait, against 1 s and 1.024.
    assert names(place(query(turns={"d1": PromptTurn(-2.0, 3)}), workers)) == (None, "d2")


def test_the_reason_says_that_others_would_be_delayed() -> None:
    asked = query(turns={"d1": PromptTurn(0.0, 4)})
    decision = place(asked, [replace(P1, pending_prompt_tokens=500), D1])
    assert decision.reason == (
        "p1 computes 1024 of 1024 tokens for d1; "
        "d1 alone would take 1024 ms, but delay the requests that wait there"
    )


@pytest.mark.parametrize(("chunk", "chosen"), [(0, "d1"), (39, "d1"), (41, "d2")])
def test_streams_are_a_limit_where_there_is_a_choice(chunk: int, chosen: str) -> None:
    streaming = replace(D1, running=8, decode_chunk_tokens=chunk)
    workers = [streaming, replace(D2, pending_prompt_tokens=500)]
    # A step of 10 ms with a chunk beside it, at 1 ms a token, within 50 ms.
    assert names(place(query(), workers)) == (None, chosen)
    assert names(place(query(), workers[:1])) == (None, "d1")
    target = Policy(itl_target=0.06)
    assert names(place(query(), workers, target)) == (None, "d1")


@pytest.mark.parametrize(
    ("target", "of_all", "chosen"),
    [(0.06, True, "d1"), (0.06, False, "d2"), (0.04, True, "d2"), (0.04, False, "d2")],
)
def test_the_class_of_streams_says_what_they_are_to_keep(
    target: float, of_all: bool, chosen: str
) -> None:
    own = {"itl_target": target, "itl_target_of_all": of_all}
    streaming = replace(D1, running=8, decode_chunk_tokens=45, **own)
    # A step takes 55 ms beside a chunk, and the policy says 50.
    workers = [streaming, replace(D2, pending_prompt_tokens=500)]
    decision = place(query(), workers)
    assert names(decision) == (None, chosen)
    costs = explain(query(), WorkerColumns(workers), None, (), Policy())
    told = {one.decode_worker: one for one in costs}
    limit = target if of_all else min(target, 0.05)
    assert (told["d1"].step_seconds, told["d1"].itl_limit_seconds) == pytest.approx((0.055, limit))
    assert told["d1"].exclusion == (Exclusion.ITL if chosen == "d2" else None)
    assert (told["d2"].step_seconds, told["d2"].itl_limit_seconds) == (0.0, 0.0)


def test_a_chunk_has_no_more_tokens_than_are_uncached() -> None:
    index = PrefixIndex()
    index.add_blocks("d1", ENGINE, CHAIN[:62])
    workers = [replace(D1, running=8, decode_chunk_tokens=512), D2]
    # 32 tokens beside streams take 42 ms, 48 would take 58.
    assert names(place(query(index), workers)) == (None, "d1")
    index.remove_blocks("d1", ENGINE, CHAIN[61:62])
    assert names(place(query(index), workers)) == (None, "d2")


def test_a_prompt_takes_longer_beside_streams_and_so_does_the_queue() -> None:
    beside = replace(D1, running=2, decode_chunk_tokens=20, pending_prompt_tokens=100)
    ttft = place(query(), [beside]).ttft
    # A chunk of 20 tokens takes 20 ms and a step of 10.
    assert (ttft.queue_seconds, ttft.prefill_seconds) == pytest.approx((0.15, 1.5 * 1.024))
    # What a prefill worker runs are prompts.
    prefilling = replace(P1, running=2, decode_chunk_tokens=20)
    ttft = place(query(), [prefilling, beside]).ttft
    assert ttft.prefill_seconds == pytest.approx(1.024)


# What may not be used


def test_no_usable_worker_is_no_worker_with_a_time_to_retry() -> None:
    for workers in ([], [P1], [replace(D1, draining=True)]):
        with pytest.raises(BatonError) as refused:
            place(query(), workers)
        assert refused.value.reason is Reason.NO_WORKER
        assert refused.value.retry_after == 1.0
    with pytest.raises(BatonError):
        place(query(excluded=frozenset({"d1"})), [P1, D1])


def test_what_fits_into_no_memory_is_refused_and_says_the_limit() -> None:
    with pytest.raises(BatonError, match=r"\(16000 tokens\)") as refused:
        place(query(prompt=20_000), [P1, D1])
    assert refused.value.reason is Reason.NO_CAPACITY
    assert refused.value.retry_after


def test_queues_that_are_too_long_are_refused() -> None:
    with pytest.raises(BatonError) as refused:
        place(query(), [replace(D1, pending_prompt_tokens=301_000)])
    assert refused.value.reason is Reason.OVERLOADED
    assert refused.value.retry_after == pytest.approx(1.0)


def test_stale_workers_are_a_last_resort() -> None:
    stale = replace(D1, stale=True)
    assert names(place(query(), [stale, replace(D2, running=50)])) == (None, "d2")
    assert names(place(query(), [stale])) == (None, "d1")
    assert place(query(), [replace(P1, stale=True), replace(D1, running=8)]).prefill_worker is None


def test_workers_whose_store_left_take_no_part_in_handoffs() -> None:
    for workers in ([beside(P1, ""), D1], [P1, beside(D1, "")]):
        assert place(query(), [replace(w, running=8) for w in workers]).prefill_worker is None


# Sources


def test_workers_that_share_a_store_need_no_sources() -> None:
    index = PrefixIndex()
    index.add_blocks("store-a", DRAM, CHAIN[:8])
    decision = place(query(index), [P1, replace(D1, running=8)])
    assert names(decision) == ("p1", "d1")
    assert decision.sources == ()


def test_the_prefill_workers_store_is_the_first_source() -> None:
    decision = place(query(), [P2, replace(D1, running=50)])
    assert names(decision) == ("p2", "d1")
    assert decision.sources == ("store-b",)


def test_holders_are_sources_and_the_decode_workers_own_store_is_not() -> None:
    index = PrefixIndex()
    index.add_blocks("store-a", DRAM, CHAIN[:10])
    index.add_blocks("store-b", DRAM, CHAIN[:10])
    index.add_blocks("store-c", DRAM, CHAIN[:40])
    decision = place(query(index), [P2, replace(D1, running=50)])
    assert names(decision) == ("p2", "d1")
    assert decision.sources == ("store-b", "store-c")


def test_a_shared_store_is_named_beside_others_since_local_workers_may_still_put() -> None:
    index = PrefixIndex()
    index.add_blocks("store-c", DRAM, CHAIN[:40])
    decision = place(query(index), [P1, replace(D1, running=50)])
    assert names(decision) == ("p1", "d1")
    assert decision.sources == ("store-a", "store-c")


def test_what_only_the_decode_store_holds_is_not_expected_of_a_prefill_elsewhere() -> None:
    index = PrefixIndex()
    index.add_blocks("store-a", DRAM, CHAIN[:32])
    decision = place(query(index), [P2, replace(D1, pending_prompt_tokens=2_000)])
    assert names(decision) == ("p2", "d1")
    assert decision.prefill.cached_tokens == 0


# What it says


def test_the_prediction_is_the_sum_of_its_parts_and_the_reason_names_the_alternative() -> None:
    streaming = replace(D1, running=8, decode_chunk_tokens=512)
    decision = place(query(), [replace(P1, pending_prompt_tokens=500), streaming])
    queue, transfer, prefill = decision.ttft
    assert queue == pytest.approx(0.5)
    assert prefill == pytest.approx(PROMPT / 1_000)
    # 64 blocks of 100 kB at 1e9 bytes/s, of which the last 512 of 1024 tokens are not hidden.
    assert transfer == pytest.approx(64 * 1e5 / 1e9 * 0.5)
    assert decision.reason == (
        "p1 computes 1024 of 1024 tokens for d1; "
        "d1 alone would take 1044 ms, but raise the inter-token latency of its streams to 522 ms"
    )


def test_equals_are_spread_evenly_and_the_same_query_goes_to_the_same_place() -> None:
    workers = [worker(f"d{i}", can_decode=True) for i in range(4)]
    chosen = Counter(place(query(seed=seed), workers).decode_worker.id for seed in range(2_000))
    assert len(chosen) == 4
    assert min(chosen.values()) > 300
    reordered = list(reversed(workers))
    for seed in range(50):
        assert names(place(query(seed=seed), workers)) == names(place(query(seed=seed), reordered))


# Any cluster

workers_strategy = st.lists(
    st.builds(
        worker,
        st.sampled_from([f"w{i}" for i in range(8)]),
        can_prefill=st.booleans(),
        can_decode=st.booleans(),
        store=st.sampled_from(["", "store-a", "store-b"]),
        layout=st.sampled_from([LAYOUT, OTHER_LAYOUT]),
        running=st.integers(0, 64),
        waiting=st.integers(0, 8),
        pending=st.integers(0, 10_000),
        free=st.integers(-5, 200),
        total=st.integers(1, 200),
        draining=st.booleans(),
        stale=st.booleans(),
    ),
    max_size=8,
    unique_by=lambda w: w.id,
)


@settings(max_examples=examples(80))
@given(
    workers=workers_strategy,
    excluded=st.frozensets(st.sampled_from([f"w{i}" for i in range(8)]), max_size=4),
    prompt=st.integers(1, 2_000),
    output=st.integers(0, 50),
    n=st.integers(1, 4),
    held=st.dictionaries(st.sampled_from(["store-a", "store-b", "w1", "w2"]), st.integers(0, 64)),
)
def test_only_what_may_be_used_is_used(
    workers: Sequence[Worker],
    excluded: frozenset[str],
    prompt: int,
    output: int,
    n: int,
    held: dict[str, int],
) -> None:
    index = PrefixIndex()
    for holder, blocks in held.items():
        index.add_blocks(holder, ENGINE if holder.startswith("w") else DRAM, CHAIN[:blocks])
    asked = query(index, prompt=prompt, output_tokens=output, n=n, excluded=excluded)
    usable = [w for w in workers if w.can_decode and not w.draining and w.id not in excluded]
    try:
        decision = place(asked, workers)
    except BatonError as error:
        assert error.retry_after is not None or (n > 1 and error.field == "n")
        assert (error.reason is Reason.NO_WORKER) == (not usable)
        return
    prefill, decode = decision.prefill_worker, decision.decode_worker
    assert decode in usable
    assert decision.decode_pages <= decode.total_pages
    assert not decode.stale or all(w.stale for w in usable)
    assert min(decision.ttft) >= 0
    assert 0 <= decision.prefill.cached_tokens < prompt + output
    if prefill is None:
        assert decode.store_id not in decision.sources
        return
    assert prefill.can_prefill
    assert not (prefill.draining or prefill.stale or prefill.id in excluded or prefill is decode)
    assert prefill.layout_id == decode.layout_id
    assert prefill.store_id and decode.store_id
    if prefill.store_id != decode.store_id:
        assert decision.sources[0] == prefill.store_id
        assert decode.store_id not in decision.sources
