"""`baton simulate`: run a trace on a simulated cluster."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from services.router.recording.files import RecordingError, read
from services.router.simulation.config import ClusterConfig
from services.router.simulation.options import cluster_config, parse
from services.router.simulation.policies.catalog import POLICIES, PolicyEntry
from services.router.simulation.replay import replay
from services.router.simulation.report.files import write_json, write_plot
from services.router.simulation.report.table import (
    print_failure,
    print_header,
    print_replayed,
    print_row,
)
from services.router.simulation.run import Outcome, Targets, find_multiple, simulate
from services.router.simulation.traces.trace import Trace, TraceError, load
from services.router.simulation.traces.workload import hot_prefix, split_tenants, spread

LOWEST = 0.1
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate what the command line says; return the exit code.

    Args:
        arguments: of the command; None: those of this process.
    """
    options = parse(arguments)
    targets, config = Targets(options.p90, options.p99), cluster_config(options)
    found: list[Outcome] = []
    runs: list[Outcome] = []
    try:
        if options.replay is not None:
            return _replay(options.replay)
        trace = workload(options)
        print_header()
        for name in options.policy:
            _study(trace, config, POLICIES[name], targets, options, found, runs)
        _write(options, found, runs, targets)
    except (TraceError, RecordingError) as error:
        sys.stderr.write(f"baton simulate: {error}\n")
        return EXIT_USAGE
    except OSError as error:
        sys.stderr.write(f"baton simulate: {error.filename}: {error.strerror}.\n")
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def _replay(directory: Path) -> int:
    replayed = replay(read(directory))
    print_replayed(replayed)
    return EXIT_FAILED if replayed.difference is not None else 0


def workload(options: argparse.Namespace) -> Trace:
    """Return the trace that is run: as it was recorded, and then changed as the options say."""
    trace = load(options.trace, block_tokens=options.block_tokens, limit=options.requests)
    if options.tenants:
        trace = split_tenants(trace, options.tenants, options.seed)
    if options.hot_prefix:
        trace = hot_prefix(trace, options.hot_prefix)
    if options.timestamps == "spread":
        trace = spread(trace, options.seed, options.tick)
    return trace


def _study(
    trace: Trace,
    config: ClusterConfig,
    policy: PolicyEntry,
    targets: Targets,
    options: argparse.Namespace,
    found: list[Outcome],
    runs: list[Outcome],
) -> None:
    """Run one policy as the options say, and print its lines."""

    def run(multiple: float, *, give_up: bool = False) -> Outcome:
        return simulate(
            trace,
            config,
            policy,
            multiple=multiple,
            seed=options.seed,
            targets=targets,
            give_up=give_up,
        )

    for multiple in options.multiple or ():
        found.append(run(multiple))
        print_row(found[-1])
        runs.append(found[-1])
    if options.find or not options.multiple:
        best, searched = find_multiple(lambda multiple: run(multiple, give_up=True), low=LOWEST)
        runs.extend(searched)
        if best is None:
            print_failure(policy.name, LOWEST)
        else:
            found.append(best)
            print_row(best)


def _write(
    options: argparse.Namespace, found: list[Outcome], runs: list[Outcome], targets: Targets
) -> None:
    if options.json:
        write_json(options.json, _setup(options), found, runs)
    if options.plot:
        write_plot(options.plot, runs, targets)


def _setup(options: argparse.Namespace) -> dict[str, Any]:
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(options).items()
        if name not in ("json", "plot")
    }
