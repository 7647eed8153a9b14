"""Run the test suite repeatedly: `python -m scripts.verdict --help`."""

import argparse
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.harness.machine import processor
from scripts.verdict import record
from scripts.verdict.clone import clone, head, is_clean
from scripts.verdict.kinds import KINDS, Around, run
from scripts.verdict.record import Run

TWELVE = ("plain:6", "beside:2", "slowed:2", "random:2")


def main() -> int:
    asked = _arguments()
    # Processes around the tests end with this one, whatever ends it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if not is_clean():
        print("what is not committed is not tested", file=sys.stderr)
    commit, machine, load = head(), processor(), record.load()
    wanted = [
        (kind, number)
        for kind, _, count in (each.partition(":") for each in asked.runs)
        for number in range(1, int(count or 1) + 1)
    ]
    print(f"{machine}, {commit[:8]}", flush=True)
    mine = {(one.kind, one.number): one for one in load if one.commit == commit and not asked.tests}
    for kind, number in wanted:
        if (kind, number) in mine and not asked.again:
            continue
        one = _one(kind, number, asked, commit, machine)
        mine[kind, number] = one
        print(record.table([one]), flush=True)
        if not asked.tests:
            load = [
                each
                for each in load
                if (each.commit, each.kind, each.number) != (commit, kind, number)
            ]
            load.append(one)
            record.save(load)
    done = [mine[each] for each in wanted]
    print(record.table(done))
    red = [one for one in done if not one.green]
    print(f"{len(done) - len(red)} of {len(done)} green")
    return bool(red)


def _one(kind: str, number: int, asked: argparse.Namespace, commit: str, processor: str) -> Run:
    record.DIRECTORY.mkdir(parents=True, exist_ok=True)
    log = record.DIRECTORY / f"{commit[:8]}-{kind}-{number}.log"
    seed = asked.seed + number
    print(f"{kind} {number}: seed {seed}, {log}", flush=True)
    with tempfile.TemporaryDirectory(prefix="baton-verdict-") as name:
        Path(name).chmod(0o755)
        with clone(Path(name) / "baton") as checkout:
            around = Around(checkout, log, seed)
            began = time.monotonic()
            code = run(kind.split("+"), _command(asked), around, _environment())
            seconds = time.monotonic() - began
    passed, test_seconds, failures = record.read_log(log.read_text(errors="replace"))
    busy = os.getloadavg()[1]
    return Run(
        commit,
        processor,
        kind,
        number,
        code == 0,
        seconds,
        test_seconds,
        passed,
        failures,
        busy,
        str(log),
    )


def _command(asked: argparse.Namespace) -> list[str]:
    where = ["test-some", f"WHERE={' '.join(asked.tests)}"] if asked.tests else ["test"]
    return ["make", *where, f"WORKERS={asked.workers}"]


def _environment() -> dict[str, str]:
    """Return the environment of a shell in which no venv is activated and make was not called."""
    gone = re.compile("MAKE|MFLAGS|VIRTUAL_ENV|PYTHONPATH|PYTHONDONTWRITEBYTECODE|GIT_")
    return {name: value for name, value in os.environ.items() if not gone.match(name)}


def _arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.verdict", description=__doc__)
    ways = ", ".join(
        f"{name} ({(about.__doc__ or '').rstrip('.').lower()})" for name, about in KINDS.items()
    )
    parser.add_argument(
        "--runs",
        nargs="+",
        default=TWELVE,
        metavar="KIND[:COUNT]",
        help=f"conditions, and number of runs: {ways}; combined: slowed+random:2. "
        f"Default: {' '.join(TWELVE)}",
    )
    parser.add_argument(
        "--tests", nargs="+", metavar="PATH", help="run only these; nothing is recorded"
    )
    parser.add_argument("--workers", default="3", help="processes that run tests (default: 3)")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of pauses and orders; run N uses SEED + N"
    )
    parser.add_argument("--again", action="store_true", help="repeat runs recorded for this commit")
    asked = parser.parse_args(arguments)
    for each in asked.runs:
        kinds, _, count = each.partition(":")
        if not set(kinds.split("+")) <= KINDS.keys() or not (count or "1").isdigit():
            parser.error(f"--runs: {each!r} is no kind[:count] of {', '.join(KINDS)}")
    return asked


if __name__ == "__main__":
    sys.exit(main())
