"""Families of models with the vLLM engine, compared with vLLM alone:
`python -m bench.families [FAMILY…]`.

A family is a tiny random checkpoint in float32 with windows and chunks of 64 tokens, in a process
of its own; one with states in bfloat16, with prompts of up to 2,400 tokens. The greedy tokens of
stock vLLM's `LLM` are compared with those of Baton's engine:

    cold      each prompt alone, with nothing cached
    again     a second time, from the engine's own prefix cache
    prefix    after another prompt with the same beginning
    together  8 prompts at once
    moved     KV is read out, forgotten and written back after every 7th token
    split     KV of the prompt is written into another engine, which continues after the first token

A cell is the number of tokens that differ, of those in the column `tokens`. Results are kept in
build/families, and a family that has one is not run again without --again. Requires `make vllm`.
"""

import argparse
import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from baton.version import commit
from bench.families.family import FAMILIES, WAYS, Result
from bench.harness import ROOT, cli
from bench.harness.child import log_path, process
from bench.harness.table import Table

KEPT = ROOT / "build" / "families"
SECONDS = 300.0


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    KEPT.mkdir(parents=True, exist_ok=True)
    table = Table(
        ("family", "<11"),
        ("tokens", "6d"),
        *((way, "8d") for way in WAYS),
        ("excused", "7d"),
        ("commit", "<8"),
    )
    found: dict[str, Any] = {}
    for family in options.families or FAMILIES:
        kept = KEPT / f"{family}.json"
        if options.again or not kept.exists():
            kept.write_text(
                json.dumps({"commit": commit(), "result": await _run(family, options.seconds)})
            )
        found[family] = json.loads(kept.read_text())
        _print(table, family, Result(**found[family]["result"]), found[family]["commit"])
    return found


async def _run(family: str, seconds: float) -> Any:
    """Run one family in a process.

    Raises:
        SystemExit: it failed, or took too long.
    """
    log = log_path(f"families-{family}")
    module = "bench.families.family"
    with TemporaryDirectory(prefix="baton-families-") as directory, log.open("wb") as errors:
        command = (sys.executable, "-m", module, family, Path(directory))
        async with process(command, {}, DEVNULL, PIPE, errors, kill_group=True) as child:
            try:
                async with asyncio.timeout(seconds):
                    output, _ = await child.communicate()
            except TimeoutError as error:
                raise SystemExit(f"{family} took longer than {seconds:.0f} s: see {log}") from error
    if child.returncode != 0:
        raise SystemExit(f"{family} failed: see {log}")
    return json.loads(output.splitlines()[-1])


def _print(table: Table, family: str, result: Result, at: str) -> None:
    if result.refused:
        print(f"{family}: {result.refused}", flush=True)
        return
    different = [result.different[way] for way in WAYS]
    table.row(family, result.tokens, *different, sum(result.excused.values()), at)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"limit for one family: {SECONDS:.0f}"
    )
    parser.add_argument("--again", action="store_true", help="also families that have a result")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="llama", needs="what make vllm installs")
