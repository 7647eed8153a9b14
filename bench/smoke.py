"""Run every benchmark at its smallest size: `python -m bench.smoke`.

The run fails if a benchmark fails, prints no measurement, or does not end in time. Output is in
build/bench/smoke; figures of the smallest size mean nothing.
"""

import argparse
import asyncio
import json
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.harness import ROOT
from bench.harness.child import process
from bench.harness.cli import NEEDS_MORE, SMALLEST
from bench.harness.table import Table

OUT = ROOT / "build" / "bench" / "smoke"
SECONDS = 240.0
"""Limit for one benchmark, with others running at the same time."""
SHARED = {"OMP_WAIT_POLICY": "passive"}
"""Threads that spin would keep the cores from the other benchmarks."""


@dataclass(frozen=True)
class Ran:
    """The result of one benchmark."""

    module: str
    seconds: float
    problem: str
    """Empty: it ran, or requires more than is installed."""
    needs: str = ""


def modules() -> list[str]:
    """Return the modules that are benchmarks: those with the common command line."""
    here = Path(__file__)
    return sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for path in here.parent.rglob("*.py")
        if path not in (here, here.parent / "harness" / "cli.py")
        and "cli.main(" in path.read_text()
    )


async def run(module: str) -> Ran:
    """Run a benchmark in its own process group, which ends with it."""
    log, results = OUT / f"{module}.log", OUT / f"{module}.json"
    results.unlink(missing_ok=True)
    began = time.monotonic()
    command = (sys.executable, "-m", module, SMALLEST, "--json", results)
    code: int | None = None
    with log.open("wb") as out:
        async with process(command, SHARED, None, out.fileno(), out, kill_group=True) as child:
            with suppress(TimeoutError):
                async with asyncio.timeout(SECONDS):
                    code = await child.wait()
    seconds = time.monotonic() - began
    said = log.read_text(errors="replace").strip().splitlines()
    last = said[-1] if said else "nothing"
    if code == NEEDS_MORE:
        return Ran(module, seconds, "", last)
    if code is None:
        return Ran(module, seconds, f"did not end within {SECONDS:.0f} s; the last line: {last}")
    if code:
        return Ran(module, seconds, f"exit code {code}: {last}")
    if not results.exists() or not json.loads(results.read_text())["results"]:
        return Ran(module, seconds, "it measured nothing")
    return Ran(module, seconds, "")


async def measure(names: list[str], at_once: int) -> list[Ran]:
    """Run benchmarks, a few at once; return the result of each."""
    slots = asyncio.Semaphore(at_once)

    async def one(module: str) -> Ran:
        async with slots:
            return await run(module)

    return list(await asyncio.gather(*map(one, names)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("only", nargs="*", help="only benchmarks whose name contains one of these")
    parser.add_argument("--at-once", type=int, default=4, help="default: 4")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    names = [name for name in modules() if not options.only or any(o in name for o in options.only)]
    names.reverse()  # those that wait for faults to pass run last: they end in time
    began = time.monotonic()
    ran = asyncio.run(measure(names, options.at_once))
    table = Table(("benchmark", "<34"), ("s", "6.1f"), ("", "<40"))
    for each in reversed(ran):
        table.row(each.module, each.seconds, each.problem or each.needs)
    failed = [each.module for each in ran if each.problem]
    skipped = sum(bool(each.needs) for each in ran)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{len(ran) - len(failed) - skipped} ran, {skipped} need more than is installed, "
        f"{len(failed)} failed, in {time.monotonic() - began:.0f} s "
        f"with {used.ru_utime + used.ru_stime:.0f} s of cores"
    )
    if failed:
        raise SystemExit(f"see build/bench/smoke: {', '.join(failed)}")


if __name__ == "__main__":
    main()
