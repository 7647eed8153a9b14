"""Traces are read as they were written; what is wrong is named with its line."""

import json
from pathlib import Path

import numpy as np
import pytest

from simulator.traces.trace import Trace, TraceError, load, parse
from simulator.traces.workload import hot_prefix, split_tenants, spread
from tests.support.router.traces import conversation_lines

GOOD = {"timestamp": 27000, "input_length": 600, "output_length": 5, "hash_ids": [7, 9]}


def lines(*changes: dict[str, object]) -> list[bytes]:
    return [json.dumps(GOOD | change).encode() for change in changes]


def conversations(requests: int = 200) -> Trace:
    return parse(conversation_lines(requests))


def test_times_begin_at_zero_and_blocks_are_numbered_as_they_appear() -> None:
    trace = parse(lines({}, {"timestamp": 30500.5, "hash_ids": [7, "x", 9], "tenant": "acme"}))
    assert trace.times.tolist() == [0.0, 3.5005]
    assert trace.chains == [(0, 1), (0, 2, 1)]
    assert (trace.blocks, trace.tenants) == (3, ["", "acme"])
    assert (trace.prompt_tokens, trace.output_tokens) == ([600, 600], [5, 5])


def test_requests_come_in_the_order_of_their_times() -> None:
    trace = parse(lines({"timestamp": 9000, "output_length": 1}, {"timestamp": 3000}))
    assert trace.output_tokens == [5, 1]


def test_what_names_no_blocks_shares_none() -> None:
    line = {"timestamp": 0, "input_length": 600, "output_length": 5, "request_type": "chat"}
    assert parse([json.dumps(line).encode(), b"\n"]).chains == [()]


def test_a_limit_reads_the_first_requests() -> None:
    assert len(parse(lines({}, {}, {}), limit=2)) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"timestamp": -1}, "line 2: timestamp -1.0 is out of range"),
        ({"timestamp": "now"}, "line 2: Expected `float`, got `str` - at `$.timestamp`"),
        ({"input_length": 0}, "line 2: input_length 0 is out of range"),
        ({"input_length": 10**9}, "line 2: input_length 1000000000 is out of range"),
        ({"output_length": -1}, "line 2: output_length -1 is out of range"),
        ({"hash_ids": [1.5]}, "line 2: Expected `int | str`, got `float`"),
    ],
)
def test_a_wrong_line_is_named(change: dict[str, object], said: str) -> None:
    with pytest.raises(TraceError) as error:
        parse(lines({}, change), name="t")
    assert f"t, {said}" in str(error.value)


def test_a_file_that_is_no_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"absent\.jsonl cannot be read: No such file"):
        load(tmp_path / "absent.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(TraceError, match=r"empty\.jsonl holds no request"):
        load(tmp_path / "empty.jsonl")
    (tmp_path / "other.csv").write_text("TIMESTAMP,ContextTokens\n")
    with pytest.raises(TraceError, match=r"other\.csv, line 1: JSON is malformed"):
        load(tmp_path / "other.csv")


def test_spread_times_stay_in_their_tick_and_in_order() -> None:
    trace = conversations()
    changed = spread(trace, seed=3, tick=3.0)
    offsets = changed.times - trace.times
    assert offsets.min() >= 0
    assert offsets.max() < 3
    assert np.all(np.diff(changed.times) >= 0)
    assert len(set(changed.times.tolist())) == len(trace)
    assert changed.chains == trace.chains
    assert np.array_equal(changed.times, spread(trace, seed=3, tick=3.0).times)
    assert not np.array_equal(changed.times, spread(trace, seed=4, tick=3.0).times)


def test_spread_times_that_stood_on_no_ticks_are_sorted_with_their_requests() -> None:
    trace = parse(
        lines(*({"timestamp": 100 * number, "input_length": 1 + number} for number in range(50)))
    )
    changed = spread(trace, seed=3)
    assert np.all(np.diff(changed.times) >= 0)
    assert changed.prompt_tokens != trace.prompt_tokens
    assert sorted(changed.prompt_tokens) == trace.prompt_tokens
    moved = changed.times - 0.1 * (np.array(changed.prompt_tokens) - 1)
    assert moved.min() >= 0
    assert moved.max() < 3


def test_a_hot_prefix_is_before_half_of_the_prompts() -> None:
    trace = conversations()
    changed = hot_prefix(trace, 20_000)
    prefix = changed.chains[0][:39]
    assert changed.blocks == trace.blocks + 39
    for number, (chain, before) in enumerate(zip(changed.chains, trace.chains, strict=True)):
        hot = number % 2 == 0
        assert chain == (prefix + before if hot else before)
        assert changed.prompt_tokens[number] == trace.prompt_tokens[number] + 39 * 512 * hot


def test_tenants_share_no_block_and_conversations_keep_theirs() -> None:
    trace = conversations()
    changed = split_tenants(trace, 4, seed=1)
    owners: dict[int, set[str]] = {}
    conversation: dict[int, set[str]] = {}
    for chain, before, tenant in zip(changed.chains, trace.chains, changed.tenants, strict=True):
        assert len(chain) == len(before)
        conversation.setdefault(before[1], set()).add(tenant)
        for block in chain:
            owners.setdefault(block, set()).add(tenant)
    assert all(len(one) == 1 for one in [*owners.values(), *conversation.values()])
    assert len(set(changed.tenants)) == 4
    assert len(owners) == changed.blocks
