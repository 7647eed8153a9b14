"""Runs are the same for the same seed, and policies stand in the order that they should."""

import ast
import json
import xml.etree.ElementTree
from functools import cache
from pathlib import Path

import pytest

import services.router
import simulator
from simulator.command import main
from simulator.config import ClusterConfig
from simulator.policies.catalog import POLICIES
from simulator.request import Request
from simulator.run import RunOutcome, Targets, find_multiple, simulate
from simulator.traces.trace import Trace, parse
from tests.support.router.traces import conversation_lines, write_conversations

ROUTER = Path(services.router.__file__).parent
SIMULATOR = Path(simulator.__file__).parent


@cache
def trace(requests: int = 1200) -> Trace:
    return parse(conversation_lines(requests))


def found(policy: str) -> float:
    def run(multiple: float) -> RunOutcome:
        return simulate(trace(), ClusterConfig(), POLICIES[policy], multiple=multiple, give_up=True)

    best, _ = find_multiple(run, within=0.02)
    assert best is not None
    return best.multiple


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_run(policy: str) -> None:
    runs = list[tuple[RunOutcome, list[tuple[int, float]]]]()
    for _ in range(2):
        requests: list[Request] = []
        outcome = simulate(
            trace(300), ClusterConfig(), POLICIES[policy], multiple=2, seed=5, requests=requests
        )
        runs.append((outcome, [(one.worker, one.ttft) for one in requests]))
    assert runs[0] == runs[1]
    assert runs[0][0].finished == 300


def test_policies_that_know_more_carry_more() -> None:
    # What this trace gave when the recorded ones gave what was known of them.
    expected = {"round-robin": 1.23, "least-wait": 1.43, "mooncake": 2.56, "fifo-infinite": 2.95}
    assert {name: found(name) for name in expected} == pytest.approx(expected, abs=0.06)


def test_giving_up_changes_no_answer() -> None:
    policy = POLICIES["least-wait"]
    for multiple in (0.5, 1.0, 1.5, 2.0, 4.0):
        whole = simulate(trace(), ClusterConfig(), policy, multiple=multiple)
        short = simulate(trace(), ClusterConfig(), policy, multiple=multiple, give_up=True)
        assert whole.complete
        assert short.carried == whole.carried
        assert short.complete == short.carried
        if whole.carried:
            assert short == whole


def test_one_target_that_is_missed_is_enough() -> None:
    policy = POLICIES["least-wait"]
    outcome = simulate(trace(300), ClusterConfig(), policy, multiple=1)
    assert outcome.carried
    for targets in (Targets(outcome.p90 * 0.99, 1e9), Targets(1e9, outcome.p99 * 0.99)):
        missed = simulate(trace(300), ClusterConfig(), policy, multiple=1, targets=targets)
        assert not missed.carried
        given_up = simulate(
            trace(300), ClusterConfig(), policy, multiple=1, targets=targets, give_up=True
        )
        assert not given_up.complete


def outcome(multiple: float, limit: float) -> RunOutcome:
    return RunOutcome("p", multiple, 1, 1, True, multiple <= limit, 0, 0, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("limit", [0.12, 0.59, 1.99, 6.2])
def test_the_highest_multiple_is_found(limit: float) -> None:
    best, runs = find_multiple(lambda multiple: outcome(multiple, limit))
    assert best is not None
    assert limit - 0.005 * max(2.0, limit) <= best.multiple <= limit
    assert len(runs) <= 11


def test_a_trace_that_asks_little_is_carried_many_times_over() -> None:
    best, runs = find_multiple(lambda multiple: outcome(multiple, 70.0))
    assert best is not None
    assert 70.0 * 0.995 <= best.multiple <= 70.0
    assert [one.multiple for one in runs[:5]] == pytest.approx([6.4, 12.8, 25.6, 51.2, 102.4])


def test_where_nothing_is_carried_nothing_is_found() -> None:
    assert find_multiple(lambda multiple: outcome(multiple, 0.0))[0] is None


def test_the_command_prints_a_table_and_writes_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_conversations(tmp_path / "t.jsonl", 200)
    out, plot = tmp_path / "out.json", tmp_path / "out.svg"
    arguments = f"{path} --policy round-robin mooncake --multiple 1 2 --workers 4 --seed 3"
    each = tmp_path / "each.jsonl"
    files = ["--json", str(out), "--plot", str(plot), "--requests-json", str(each)]
    assert main([*arguments.split(), *files]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split()[:4] == ["policy", "multiple", "p50", "s"]
    assert [line.split("  ")[0] for line in printed[1:]] == [
        *["round robin"] * 2,
        *["Mooncake, algorithm 1"] * 2,
    ]
    document = json.loads(out.read_text())
    assert document["setup"]["workers"] == 4
    assert [(one["policy"], one["multiple"]) for one in document["results"]] == [
        ("round-robin", 1),
        ("round-robin", 2),
        ("mooncake", 1),
        ("mooncake", 2),
    ]
    lines = [json.loads(line) for line in each.read_text().splitlines()]
    assert len(lines) == 4 * 200
    assert {line["policy"] for line in lines} == {"round-robin", "mooncake"}
    ttfts = sorted(line["ttft"] for line in lines[:200])
    assert ttfts[180] == document["results"][0]["p90"]
    svg = xml.etree.ElementTree.parse(plot).getroot()
    assert "Mooncake, algorithm 1" in "".join(svg.itertext())


def test_the_command_searches_and_says_where_nothing_is_carried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_conversations(tmp_path / "t.jsonl", 200)
    variants = "--timestamps spread --hot-prefix 5000 --tenants 3 --requests 150"
    assert main([str(path), "--policy", "least-wait", *variants.split()]) == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert row.startswith("least wait")
    assert float(row.split()[4]) <= 5.0
    assert main([str(path), "--policy", "least-wait", "--prefill-rate", "10"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["least", "wait", "<", "0.10"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent.jsonl"], "absent.jsonl cannot be read: No such file or directory"),
        (["t", "--workers", "0"], "argument --workers: 0 is out of range: 1 to 10000"),
        (["t", "--prefill-rate", "0"], "argument --prefill-rate: 0 is out of range: more than 0"),
        (["t", "--multiple", "nan"], "argument --multiple: nan is out of range: more than 0"),
        (["t", "--policy", "best"], "argument --policy: invalid choice: 'best'"),
        (["t", "--requests-json", "f"], "--requests-json needs --multiple: a search has no one"),
        (["t", "--p90", "soon"], "argument --p90: invalid number value: 'soon'"),
    ],
)
def test_wrong_options_are_named(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as exit_:
        code = exit_.code  # type: ignore[assignment]
    assert code == 2
    assert said in capsys.readouterr().err


def classes(folder: Path, *, but: Path | None = None) -> set[str]:
    return {
        node.name
        for path in folder.rglob("*.py")
        if but is None or but not in path.parents
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }


def test_the_simulator_defines_nothing_that_production_has() -> None:
    production = classes(ROUTER)
    assert {"PrefixIndex", "Fleet", "TicketTable", "PlacementService"} <= production
    assert not classes(SIMULATOR) & production


def test_baton_is_what_production_runs() -> None:
    source = (SIMULATOR / "policies" / "baton.py").read_text()
    imported = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {
        f"services.router.{name}"
        for name in (
            "policy.placement_service.PlacementService",
            "prefix_index.index.PrefixIndex",
            "state.fleet.Fleet",
            "state.tickets.TicketTable",
        )
    } <= imported
