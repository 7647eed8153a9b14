"""Faults under load, each with a promise: `python -m bench.faults --seed 1 --rows decode-killed`.

Starts etcd and two of each process, with every connection between them through a proxy, and keeps
requests running over gRPC and HTTP: sampled and greedy, with stop strings, two choices and, if the
engine supports them, log probabilities. Each output is compared with that of an undisturbed engine.
A row prints one line of JSON. It holds if no request failed, no token is wrong, streams continued
in time, and everything that requests held was released. A row that cannot prove that its fault
happened is invalid. A request rejected as poison in one row stays rejected for ten minutes; later
rows send another one (`replaced`). Tokens must be right in float64, and in bfloat16, whose
operators are deterministic. In other dtypes wrong tokens are counted and are no failure, as batches
and chunks of other sizes round differently (docs/faults.md).
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.faults.frontends import FleetFrontends
from bench.faults.rows import ENGINES, ROWS, Row
from bench.faults.scene import RELEASE_SECONDS, Scene, scene
from bench.faults.setup import COUNTS, DTYPE, cluster_settings, is_exact, traffic
from bench.faults.traffic import Seen, Traffic
from bench.harness import cli
from bench.harness.fleet import add_counts

BEFORE_SECONDS = 1.0
AFTER_SECONDS = 1.0


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    settings = cluster_settings(options.engine, options.dtype)
    exact = is_exact(options.engine, options.dtype)
    draw = random.Random(options.seed)
    names = options.rows.split(",") if options.rows else list(ROWS)
    with tempfile.TemporaryDirectory() as directory:
        async with scene(Path(directory), settings, options.counts, draw) as made:
            load = traffic(
                FleetFrontends(made.fleet, made.draw), made.draw, options.engine, options.dtype
            )
            await load.learn(exact=exact)
            for name in names:
                if options.engine in ROWS[name].engines:
                    result = {
                        "seed": options.seed,
                        "engine": options.engine,
                        "dtype": options.dtype,
                        **await play(ROWS[name], made, load, exact=exact),
                    }
                    print(json.dumps(result), flush=True)
                    results.append(result)
                    cli.write(options, results)
    broken = [result["row"] for result in results if result["verdict"] != "held"]
    if broken:
        raise SystemExit(f"not held: {', '.join(broken)}")
    return results


async def play(row: Row, made: Scene, load: Traffic, *, exact: bool) -> dict[str, Any]:
    """Inject a row's fault under load and evaluate what clients saw."""
    stop = asyncio.Event()
    running = asyncio.create_task(load.run(stop, resume=row.frontend_dies))
    began = time.monotonic()
    try:
        await asyncio.sleep(BEFORE_SECONDS)
        proof: dict[str, Any] = await row.act(made)
        await asyncio.sleep(AFTER_SECONDS)
    except (TimeoutError, AssertionError) as error:
        proof = {"fault": False, "error": f"{type(error).__name__}: {error}"}
    finally:
        stop.set()
        seen = await running
    replaced = load.replace_refused()
    seconds, held = await made.at_baseline(RELEASE_SECONDS)
    surfaces = {name: one.summary() for name, one in seen.items()}
    broken = _broken(row, seen, surfaces, held, exact=exact)
    return {
        "row": row.name,
        "verdict": "invalid" if not all_true(proof) else "broken" if broken else "held",
        "broken": broken,
        **surfaces,
        "released_seconds": round(seconds, 2),
        "held": held,
        "proof": proof,
        "replaced": replaced,
        "seconds": round(time.monotonic() - began, 1),
    }


def all_true(proof: object) -> bool:
    """Return whether every value of a proof is true, including nested ones."""
    if isinstance(proof, Mapping):
        return all(map(all_true, proof.values()))
    if isinstance(proof, list):
        return bool(proof) and all(map(all_true, proof))
    return bool(proof)


def _broken(
    row: Row,
    seen: Mapping[str, Seen],
    surfaces: Mapping[str, Any],
    held: Mapping[str, float],
    *,
    exact: bool,
) -> list[str]:
    """Return the promises that did not hold."""
    found = []
    for name, one in seen.items():
        if one.failed:
            found.append(f"{one.failed} failed over {name}")
        if one.wrong and exact:
            found.append(f"{one.wrong} wrong over {name}")
        if one.cut and not row.frontend_dies:
            found.append(f"{one.cut} cut over {name}")
        if not one.ok:
            found.append(f"no request succeeded over {name}")
        can_move = name == "grpc" or not row.frontend_dies
        if can_move and (surfaces[name]["gap_p99"] or 0) > row.gap_seconds:
            found.append(f"gaps of {surfaces[name]['gap_p99']} s over {name}")
    if held:
        found.append(f"still held: {dict(held)}")
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices")
    parser.add_argument("--engine", choices=ENGINES, default="sim")
    parser.add_argument("--dtype", default=DTYPE, help="torch engine's; default: %(default)s")
    parser.add_argument("--rows", default="", help=f"default: all: {', '.join(ROWS)}")
    add_counts(parser, COUNTS)


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--rows decode-killed --counts 1,1,1,2,1")
