"""`baton simulate`: run a trace on a simulated cluster."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from services.router.recording.files import RecordingError, read
from simulator.options import cluster_config, load_curve, parse, scaling_config
from simulator.policies.catalog import POLICIES
from simulator.replay import replay
from simulator.report.files import write_json, write_plot, write_scaling_json
from simulator.report.table import (
    print_header,
    print_replayed,
    print_scaling_header,
    print_scaling_row,
)
from simulator.run import Targets
from simulator.scaling.run import simulate_scaling
from simulator.study import Study
from simulator.traces.curve import follow_curve
from simulator.traces.trace import Trace, TraceError, load
from simulator.traces.workload import hot_prefix, split_tenants, spread

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
_FILES = ("json", "plot", "requests_json", "replay")
"""Options that do not affect results."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the simulation of a command line; return the exit code.

    Args:
        arguments: of the command; None: those of this process.
    """
    options = parse(arguments)
    try:
        if options.replay is not None:
            return _replay(options.replay)
        return _study(options) if options.autoscale is None else _autoscale(options)
    except (TraceError, RecordingError) as error:
        sys.stderr.write(f"baton simulate: {error}\n")
        return EXIT_USAGE
    except OSError as error:
        sys.stderr.write(f"baton simulate: {error.filename}: {error.strerror}.\n")
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _replay(directory: Path) -> int:
    replayed = replay(read(directory))
    print_replayed(replayed)
    return EXIT_FAILED if replayed.difference is not None else 0


def workload(options: argparse.Namespace) -> Trace:
    """Return the trace to run: the recorded one, changed as the options specify."""
    trace = load(options.trace, block_tokens=options.block_tokens, limit=options.requests)
    if options.tenants:
        trace = split_tenants(trace, options.tenants, options.seed)
    if options.hot_prefix:
        trace = hot_prefix(trace, options.hot_prefix)
    if options.timestamps == "spread":
        trace = spread(trace, options.seed, options.tick)
    curve = load_curve(options, trace.seconds)
    return follow_curve(trace, curve, options.seed) if curve is not None else trace


def _study(options: argparse.Namespace) -> int:
    trace, targets = workload(options), Targets(options.p90, options.p99)
    with ExitStack() as stack:
        file = None
        if options.requests_json is not None:
            file = stack.enter_context(options.requests_json.open("w"))
        study = Study(trace, cluster_config(options), targets, options.seed, file)
        print_header()
        for name in options.policy:
            for multiple in options.multiple or ():
                study.run(POLICIES[name], multiple)
            if options.find or not options.multiple:
                study.find(POLICIES[name], tuple(options.between))
    if options.json is not None:
        write_json(options.json, _setup(options), study.found, study.runs)
    if options.plot is not None:
        write_plot(options.plot, study.runs, targets)
    return 0


def _autoscale(options: argparse.Namespace) -> int:
    trace, config = workload(options), cluster_config(options)
    outcomes = []
    print_scaling_header()
    for name in options.policy:
        for scaler in options.scaler:
            for multiple in options.multiple or (1.0,):
                scaling = scaling_config(options, scaler)
                outcome = simulate_scaling(
                    trace, config, POLICIES[name], scaling, multiple=multiple, seed=options.seed
                )
                outcomes.append(outcome)
                print_scaling_row(outcome)
    if options.json is not None:
        write_scaling_json(options.json, _setup(options), outcomes)
    return 0


def _setup(options: argparse.Namespace) -> dict[str, Any]:
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(options).items()
        if name not in _FILES
    }
