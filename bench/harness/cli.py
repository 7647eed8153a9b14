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

from bench.harness.machine import processor

SMALLEST = "--smallest"
NEEDS_MORE = 77
"""Exit code of a benchmark whose smallest size cannot run with what `make test` installs."""

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
    """Parse the arguments, name the processor, measure, and write the results where asked.

    Args:
        measure: prints what it finds and returns it, fit for JSON; may be a coroutine function,
            which runs on uvloop, as Baton's processes do.
        doc: the benchmark's docstring: its help.
        arguments: adds the benchmark's own arguments.
        rounds: how often everything is measured by default; None: it has no rounds.
        smallest: the arguments of its smallest size, which runs in seconds and still does all that
            the benchmark is for.
        needs: what it needs that `make test` does not install; empty: nothing.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        SMALLEST, action="store_true", help=f"run at its smallest size, which is {smallest}"
    )
    parser.add_argument("--json", type=Path, help="also write what was measured to this file")
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
    # Scratch directories are removed, however it ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(processor(), flush=True)
    if inspect.iscoroutinefunction(measure):
        results = uvloop.run(measure(options))
    else:
        results = measure(options)
    write(options, results)


def write(options: argparse.Namespace, results: object) -> None:
    """Write the results to the file that `--json` names, if any; long runs call it as they go."""
    if options.json is None:
        return
    asked = {name: value for name, value in vars(options).items() if name != "json"}
    document = {"processor": processor(), "arguments": asked, "results": results}
    options.json.write_text(json.dumps(document, indent=1, default=str) + "\n")
