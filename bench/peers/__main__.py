"""Baton's frontend compared with other servers at equal pace: `python -m bench.peers`.

Starts each system on this machine with an engine that takes almost no CPU and gives every stream a
token per fixed step, and sends requests with prompts of 124 tokens. Prints the CPU of the path
before the worker (frontend and router), times to first token, and how Baton's figures compare with
the goals. Systems:

    baton-http, baton-grpc   this checkout, over its two APIs
    dynamo                   NVIDIA Dynamo 1.6.1, KV-aware routing: tokenizes, as Baton does
    smg                      smg 1.13.0: forwards HTTP, and does not process tokens

Loads: 8 tokens to 64 clients, 256 to 64, 16 to one, and 8 to 64 clients that all start at once. The
peers are installed into .peers/ on first use. Systems compare only at equal pace: a server that
waits for its engine handles more tokens at a time, which looks cheaper. So each system first runs
once to measure by how much its steps exceed the setting, and the setting is reduced by that.

    python -m bench.peers --systems baton-http dynamo --loads "8 to 64" --paces 6 --share 0.25
"""

import argparse
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from bench.harness import cli
from bench.harness.checkpoints import tokenizer_only
from bench.harness.table import Table
from bench.peers.baton import baton
from bench.peers.dynamo import dynamo
from bench.peers.environments import binaries
from bench.peers.goals import print_goals
from bench.peers.loads import LOADS, PACED, PROMPT_TOKENS, load_of, measure, scaled, warm_up
from bench.peers.serving import Serving
from bench.peers.smg import smg
from bench.serving.token_path import prompts

Start = Callable[[Path, float], AbstractAsyncContextManager[Serving]]
"""Starts a system with a model, and with steps of this many seconds."""
SYSTEMS: Mapping[str, Start] = {
    "baton-http": baton,
    "baton-grpc": baton,
    "dynamo": dynamo,
    "smg": smg,
}


async def lateness(start: Start, model: Path, step_seconds: float, texts: list[str]) -> float:
    """Return by how many seconds a system's steps exceed the setting, with 64 streams."""
    async with start(model, step_seconds) as serving:
        load = load_of(serving, PACED, texts, over_grpc=False)
        row = await measure(serving, load)
    seconds: float = row["itl_ms"]["p50"] / 1e3
    return seconds - step_seconds


async def compare(options: argparse.Namespace) -> dict[str, Any]:
    model = tokenizer_only("peers")
    texts = prompts(model, 512, tokens=PROMPT_TOKENS)
    for name in options.systems:
        if not name.startswith("baton"):
            binaries(name)
    table = Table(
        ("system", "<10"),
        ("step ms", "7.0f"),
        ("load", "<11"),
        ("req/s", "7.1f"),
        ("ms/request", "8.3f"),
        ("us/token", "8.1f"),
        ("ttft p50", "8.2f"),
        ("p99", "7.2f"),
        ("itl p50", "7.2f"),
        ("p99", "7.2f"),
        ("events/req", "6.1f"),
        ("errors", "6"),
        ("ms/request of each", "<20"),
    )
    rows: list[dict[str, Any]] = []
    late: dict[Start, float] = {}
    for start in dict.fromkeys(SYSTEMS[name] for name in options.systems):
        late[start] = await lateness(start, model, min(options.paces) / 1e3, texts)
    for number in range(options.rounds):
        for pace in options.paces:
            for name in options.systems:
                over_grpc = name == "baton-grpc"
                start = SYSTEMS[name]
                async with start(model, pace / 1e3 - late[start]) as serving:
                    await warm_up(serving, texts, over_grpc=over_grpc)
                    for load in options.loads:
                        shape = scaled(LOADS[load], options.share)
                        asked = load_of(serving, shape, texts, over_grpc=over_grpc)
                        row = {"round": number, "pace_ms": pace, "system": name, "load": load}
                        rows.append({**row, **await measure(serving, asked)})
                        show(table, rows[-1])
                        cli.write(options, {"loads": rows})
    return {"loads": rows, "goals": print_goals(rows)}


def show(table: Table, row: Mapping[str, Any]) -> None:
    """Print the line of a load."""
    table.row(
        row["system"],
        row["pace_ms"],
        row["load"],
        row["requests_per_second"],
        row["ms_per_request"],
        row["us_per_token"],
        row["ttft_ms"]["p50"],
        row["ttft_ms"]["p99"],
        row["itl_ms"]["p50"],
        row["itl_ms"]["p99"],
        row["events_per_request"],
        sum(row["errors"].values()),
        ", ".join(f"{name} {ms:.3f}" for name, ms in row["parts_ms_per_request"].items()),
    )
    if row["errors"]:
        print(f"  {row['errors']} {row['error_sample']}", flush=True)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--paces", nargs="+", type=float, default=[6.0, 20.0], help="ms per step")
    parser.add_argument("--share", type=float, default=1.0, help="share of the requests to send")


if __name__ == "__main__":
    cli.main(
        compare,
        __doc__,
        arguments,
        rounds=1,
        smallest="--share 0.01",
        needs="what make bench-peers installs",
    )
