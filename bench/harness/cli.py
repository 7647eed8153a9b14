"""The command line of every benchmark."""

import argparse
import inspect
import json
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from baton.telemetry import logs
from bench.harness.machine import processor

SMALLEST = "--smallest"
NEEDS_MORE = 77
"""Exit code of a benchmark whose smallest size needs more than `make test` installs."""

Measure = Callable[[argparse.Namespace], Any]


def main(
    measure: Measure,
    doc: str | None,
    arguments: Callable[[argparse.ArgumentParser], None] | None = None,
    rounds: int | None = None,
    *,
    smallest: str,
    needs: str = "",
) -> None:
    """Parse the arguments, print the processor, measure, and write the results if requested.

    Warnings of Baton's code in this process go to standard error, and the results alone to output.

    Args:
        measure: prints the results and returns them, fit for JSON. May be a coroutine function,
            which runs on uvloop, as Baton's processes do.
        doc: the benchmark's docstring: its help.
        arguments: adds the benchmark's own arguments.
        rounds: default number of rounds; None: it has no rounds.
        smallest: the arguments of its smallest size, which runs in seconds and still exercises the
            whole benchmark.
        needs: requirements that `make test` does not install; empty: none.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(SMALLEST, action="store_true", help=f"run the smallest size: {smallest}")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help=f"default: {rounds}")
    if arguments is not None:
        arguments(parser)
    given = sys.argv[1:]
    if SMALLEST in given:
        if needs:
            print(f"needs {needs}")
            raise SystemExit(NEEDS_MORE)
        given = [*shlex.split(smallest), *given]
    options = parser.parse_args(given)
    # Scratch directories are removed in any case.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(processor(), flush=True)
    logs.configure("bench", "bench", "warning")
    if inspect.iscoroutinefunction(measure):
        results = uvloop.run(measure(options))
    else:
        results = measure(options)
    write(options, results)


def write(options: argparse.Namespace, results: object) -> None:
    """Write the results to the file of `--json`, if any; long runs call it repeatedly."""
    if options.json is None:
        return
    asked = {name: value for name, value in vars(options).items() if name != "json"}
    document = {"processor": processor(), "arguments": asked, "results": results}
    options.json.write_text(json.dumps(document, indent=1, default=str) + "\n")
