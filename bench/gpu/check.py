"""The parts of the check on a GPU, one after the other until its time is over."""

import argparse
import asyncio
import json
import shlex
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from tempfile import TemporaryDirectory
from typing import Any

from bench.families.family import FAMILIES, WAYS
from bench.gpu.family import Result
from bench.harness.child import log_path, process
from bench.harness.table import Table

FAMILY_SECONDS = 150.0
MOST_OFF = 0.5
"""Mean difference of logprobs above which an engine computes something else: rounding in bfloat16
changes those of random models by a tenth, other tokens in the context by several."""


class GpuCheck:
    """Runs parts in processes of their own, and keeps what they found.

    Args:
        options: of the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._until = time.monotonic() + options.seconds
        self.found: dict[str, Any] = {}
        self.problems: list[str] = []
        """What failed or was not run, in a sentence each."""

    async def families(self, kind: str) -> None:
        """Compare families with an engine, several at once, and print a line for each."""
        slots = asyncio.Semaphore(self._options.at_once)
        table = Table(
            ("family", "<11"),
            ("engine", "<6"),
            ("reference", "<12"),
            ("tokens", "6d"),
            ("off", "6.4f"),
            ("largest", "7.4f"),
            ("different", "9d"),
            ("gap", "6.3f"),
            *((way, "8d") for way in WAYS[1:]),
            ("start s", "7.1f"),
        )

        async def one(family: str) -> None:
            words = ("bench.gpu.family", family, kind, self._options.device)
            how = (str(self._options.beginnings), self._options.reference)
            with TemporaryDirectory(prefix="baton-gpu-") as directory:
                async with slots:
                    lines = await self._run(
                        f"gpu-{family}-{kind}", (*words, *how, directory), FAMILY_SECONDS
                    )
            if lines:
                self._judge(table, family, kind, Result(**json.loads(lines[-1])))

        await asyncio.gather(*(one(each) for each in self._options.families or FAMILIES))

    def _judge(self, table: Table, family: str, kind: str, result: Result) -> None:
        self.found[f"{family} {kind}"] = asdict(result)
        if result.refused:
            print(f"{family}: {result.refused}", flush=True)
            return
        table.row(
            family,
            kind,
            result.reference,
            result.tokens,
            result.mean_off,
            result.most_off,
            result.different,
            result.gap,
            *(result.ways[way] for way in WAYS[1:]),
            result.start_seconds,
        )
        self.problems += problems_of(f"{family} with {kind}", result)

    async def benchmark(self, module: str, arguments: str) -> None:
        """Run a benchmark and print its output as it comes; no arguments: do not."""
        name = module.rpartition(".")[2]
        if arguments:
            print(f"\n{name} {arguments}", flush=True)
            words = (module, "--device", self._options.device, *shlex.split(arguments))
            self.found[name] = await self._run(
                f"gpu-{name}", words, self._options.seconds, is_shown=True
            )
            print(flush=True)

    async def _run(
        self, name: str, words: Sequence[str], seconds: float, *, is_shown: bool = False
    ) -> list[str]:
        """Run a module; return the lines of its output, none if it failed."""
        seconds = min(seconds, self._until - time.monotonic())
        if seconds <= 0:
            self.problems.append(f"{name}: not run, the time was over")
            return []
        log = log_path(name)
        lines: list[str] = []
        command = (sys.executable, "-m", *words)
        how = f"took longer than {seconds:.0f} s"
        with log.open("wb") as errors:
            started = process(command, {}, None, PIPE, errors, kill_group=True)
            async with started as child:
                assert child.stdout is not None
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        async for line in child.stdout:
                            lines.append(line.decode(errors="replace").rstrip())
                            if is_shown:
                                print(lines[-1], flush=True)
                        if await child.wait() == 0:
                            return lines
                        how = f"failed with exit code {child.returncode}"
        self.problems.append(f"{name} {how}: see {log}")
        return []


def problems_of(name: str, result: Result) -> list[str]:
    """Return what is wrong with a result, in a sentence each."""
    found = []
    if not result.mean_off <= MOST_OFF:  # also NaN
        found.append(
            f"{name}: logprobs are off those of {result.reference} by {result.mean_off:.3f}, more "
            f"than {MOST_OFF}"
        )
    changed = {way: count for way, count in result.ways.items() if count}
    if result.deterministic and changed:
        found.append(f"{name} is deterministic, and tokens changed: {changed}")
    return found
