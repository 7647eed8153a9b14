"""The command line of `baton simulate`."""

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from services.router.sizing.settings import SizingSettings
from simulator.config import MAX_WORKERS, ClusterConfig
from simulator.model.costs import CostModel, Ordering
from simulator.policies.catalog import POLICIES
from simulator.run import HIGHEST, LOWEST, Targets
from simulator.scaling.config import SCALERS, ScalerName, ScalingConfig
from simulator.traces.curve import Burst, LoadCurve, TimeSpan
from simulator.traces.trace import BLOCK_TOKENS
from simulator.traces.workload import TICK_SECONDS

_DESCRIPTION = """
Run a trace of requests on a simulated cluster and print times to first token.
Without --multiple, find the highest multiple of the recorded rate at which the
targets are met. Equal options give equal results. docs/simulation.md has the
format of traces and what is modelled.
"""
_SCALING, _SIZING = ScalingConfig(), SizingSettings()
_CONFIG, _COSTS, _ORDERING, _TARGETS = ClusterConfig(), CostModel(), Ordering(), Targets()


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    made = argparse.ArgumentParser(
        prog="baton simulate",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "trace", type=Path, nargs="?", metavar="TRACE", help="file, one JSON object per line"
    )
    made.add_argument(
        "--replay",
        type=Path,
        metavar="DIRECTORY",
        help="replay a router's recording, and compare the placements",
    )
    made.add_argument(
        "--policy",
        nargs="+",
        choices=POLICIES,
        default=list(POLICIES),
        metavar="NAME",
        help=f"policies, of {', '.join(POLICIES)}; default: all",
    )
    load = made.add_argument_group("load")
    add = load.add_argument
    add("--multiple", type=_positive, nargs="+", help="multiples of the recorded rate, a run each")
    add("--find", action="store_true", help="find the highest multiple; default without --multiple")
    add(
        "--between",
        type=_positive,
        nargs=2,
        default=(LOWEST, HIGHEST),
        metavar=("LOW", "HIGH"),
        help="initial search interval; default: %(default)s",
    )
    add("--p90", type=_positive, default=_TARGETS.p90, help="target in s; default: %(default)s")
    add("--p99", type=_positive, default=_TARGETS.p99, help="target in s; default: %(default)s")
    add(
        "--timestamps",
        choices=("recorded", "spread"),
        default="recorded",
        help="spread: evenly within their tick; default: recorded",
    )
    add("--tick", type=_positive, default=TICK_SECONDS, help="seconds; default: %(default)s")
    add(
        "--hot-prefix",
        type=_count,
        default=0,
        metavar="TOKENS",
        help="prefix of half of the prompts",
    )
    add("--tenants", type=_count, default=0, help="tenants to split conversations over")
    add("--requests", type=_at_least_1, help="requests from the start; default: all")
    add("--block-tokens", type=_at_least_1, default=BLOCK_TOKENS, help="default: %(default)s")
    add("--seed", type=_count, default=0, help="random seed; default: 0")
    cluster = made.add_argument_group("cluster")
    add = cluster.add_argument
    add("--workers", type=_workers, default=_CONFIG.workers, help="default: %(default)s")
    add("--decode-workers", type=_workers_or_none, default=0, help="separate pool; default: 0")
    add("--cache-tokens", type=_at_least_1, default=_CONFIG.cache_tokens, help="KV of each worker")
    add("--slow-workers", type=_count, default=0, help="number of slow workers; default: 0")
    add("--slow-speed", type=_positive, default=_CONFIG.slow_speed, help="default: %(default)s")
    add("--order", choices=("fifo", "shortest"), default="fifo", help="order of waiting prompts")
    add("--age", type=_not_negative, default=_ORDERING.age, help="default: %(default)s")
    add(
        "--disaggregation",
        choices=("auto", "always", "never"),
        default="auto",
        help="Baton's setting",
    )
    add(
        "--event-delay",
        type=_not_negative,
        default=_CONFIG.event_delay,
        help="delay of KV events in s",
    )
    add("--report-interval", type=_not_negative, default=_CONFIG.report_interval, help="s")
    add("--report-delay", type=_not_negative, default=_CONFIG.report_delay, help="s")
    costs = made.add_argument_group("costs, in tokens, seconds and tokens per second")
    add = costs.add_argument
    add("--prefill-rate", type=_positive, default=_COSTS.prefill_rate, help="default: %(default)s")
    add("--quadratic-tokens", type=_not_negative, default=0.0, help="context that doubles the cost")
    add(
        "--transfer-rate", type=_positive, default=_COSTS.transfer_rate, help="default: %(default)s"
    )
    add("--local-rate", type=_not_negative, default=_COSTS.local_rate, help="default: 0, no limit")
    add("--step-seconds", type=_positive, default=_COSTS.step_seconds, help="default: %(default)s")
    add("--stream-seconds", type=_not_negative, default=0.0, help="added to a step per stream")
    add("--chunk-tokens", type=_count, default=0, help="prompt tokens per step with streams")
    add(
        "--beside",
        choices=("sum", "longer"),
        default=_COSTS.beside,
        help="duration of such steps from chunk and batch; default: %(default)s",
    )
    _add_scaling(made)
    output = made.add_argument_group("output")
    output.add_argument("--json", type=Path, metavar="FILE", help="write the results of all runs")
    output.add_argument(
        "--requests-json", type=Path, metavar="FILE", help="write each request of --multiple's runs"
    )
    output.add_argument(
        "--plot", type=Path, metavar="FILE", help="write a plot of the results as SVG"
    )
    return made


def _add_scaling(made: argparse.ArgumentParser) -> None:
    scaling = made.add_argument_group("scaling of the workers that compute prompts")
    add = scaling.add_argument
    add("--autoscale", type=_bounds, metavar="MIN:MAX", help="replicas; starts with MIN")
    add(
        "--scaler",
        nargs="+",
        choices=SCALERS,
        default=["needed"],
        help="needed: the router's baton_needed_replicas; queue: prompts not computed; fixed: MIN",
    )
    add(
        "--start-seconds",
        type=_not_negative,
        default=_SCALING.start_seconds,
        help="until a replica takes requests; default: %(default)s",
    )
    add("--ttft-target", type=_positive, default=_SIZING.ttft_target, help="default: %(default)s")
    add("--hold-seconds", type=_positive, default=_SIZING.hold_seconds, help="default: %(default)s")
    add(
        "--idle-seconds", type=_not_negative, default=0.0, help="then no replica; default: 0, never"
    )
    add("--fail-at", type=_not_negative, nargs="+", default=(), help="a replica is lost, s")
    add("--metrics-away", type=_span, default=TimeSpan(0, 0), metavar="BEGIN:END", help="s")
    add("--day", type=_positive, metavar="PEAK", help="the highest rate over the lowest; in order")
    add("--quiet", type=_span, nargs="+", default=(), metavar="BEGIN:END", help="no requests, s")
    add("--burst", type=_burst, nargs="+", default=(), metavar="BEGIN:END:FACTOR", help="s")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a command line; None: that of this process. Exit if it is invalid."""
    made = parser()
    options = made.parse_args(arguments)
    if (options.trace is None) == (options.replay is None):
        made.error("name a TRACE or a recording to --replay, one of them")
    if not options.between[0] < options.between[1]:
        made.error("--between needs the lower multiple first")
    if options.requests_json is not None and not options.multiple:
        made.error("--requests-json needs --multiple: a search has no one run")
    _check_scaling(made, options)
    return options


def _check_scaling(made: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.autoscale is None:
        return
    if options.find or options.plot is not None or options.requests_json is not None:
        made.error("--autoscale goes with neither --find, --plot nor --requests-json")
    if options.policy == list(POLICIES):
        options.policy = ["baton-queue"]
    fixed = [name for name in options.policy if not POLICIES[name].elastic]
    if fixed:
        made.error(f"--autoscale: the workers of {', '.join(fixed)} cannot come and go")


def load_curve(options: argparse.Namespace, seconds: float) -> LoadCurve | None:
    """Return the curve that the options describe, over a trace's time; None: they describe none."""
    if options.day is None and not options.quiet and not options.burst:
        return None
    return LoadCurve(seconds, options.day or 1.0, tuple(options.quiet), tuple(options.burst))


def scaling_config(options: argparse.Namespace, scaler: ScalerName) -> ScalingConfig:
    """Return the pool that the options describe, under one scaler."""
    least, most = options.autoscale
    return ScalingConfig(
        scaler=scaler,
        sizing=SizingSettings(
            min_replicas=least,
            max_replicas=most,
            ttft_target=options.ttft_target,
            hold_seconds=options.hold_seconds,
            idle_seconds=options.idle_seconds,
        ),
        start_seconds=options.start_seconds,
        failures=tuple(options.fail_at),
        blind=options.metrics_away,
    )


def cluster_config(options: argparse.Namespace) -> ClusterConfig:
    """Return the cluster that the options describe."""
    scales = options.autoscale is not None
    return ClusterConfig(
        workers=options.autoscale[1] if scales else options.workers,
        started_workers=options.autoscale[0] if scales else None,
        decode_workers=options.decode_workers,
        cache_tokens=options.cache_tokens,
        costs=CostModel(
            prefill_rate=options.prefill_rate,
            quadratic_tokens=options.quadratic_tokens,
            transfer_rate=options.transfer_rate,
            local_rate=options.local_rate,
            step_seconds=options.step_seconds,
            stream_seconds=options.stream_seconds,
            chunk_tokens=options.chunk_tokens,
            beside=options.beside,
        ),
        ordering=Ordering(options.order, options.age),
        slow_workers=options.slow_workers,
        slow_speed=options.slow_speed,
        event_delay=options.event_delay,
        report_interval=options.report_interval,
        report_delay=options.report_delay,
        disaggregation=options.disaggregation,
    )


def _number(low: float, *, open_end: bool) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not math.isfinite(value) or value < low or (open_end and value == low):
            wanted = f"more than {low:g}" if open_end else f"at least {low:g}"
            raise argparse.ArgumentTypeError(f"{text} is out of range: {wanted}")
        return value

    read.__name__ = "number"
    return read


def _bounds(text: str) -> tuple[int, int]:
    least, _, most = text.partition(":")
    try:
        bounds = int(least), int(most or least)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not MIN:MAX, for example 1:8") from None
    if not 1 <= bounds[0] <= bounds[1] <= MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"{text} is out of range: 1 to {MAX_WORKERS}")
    return bounds


def _numbers(text: str, form: str) -> list[float]:
    parts = text.split(":")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) != form.count(":") + 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not {form}")
    if not all(0 <= number < math.inf for number in numbers) or numbers[0] > numbers[1]:
        raise argparse.ArgumentTypeError(f"{text} is out of range: 0 or more, BEGIN before END")
    return numbers


def _span(text: str) -> TimeSpan:
    return TimeSpan(*_numbers(text, "BEGIN:END"))


def _burst(text: str) -> Burst:
    return Burst(*_numbers(text, "BEGIN:END:FACTOR"))


def _integer(low: int, high: int | None = None) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if value < low or (high is not None and value > high):
            wanted = f"at least {low}" if high is None else f"{low} to {high}"
            raise argparse.ArgumentTypeError(f"{text} is out of range: {wanted}")
        return value

    read.__name__ = "integer"
    return read


_positive = _number(0, open_end=True)
_not_negative = _number(0, open_end=False)
_count = _integer(0)
_at_least_1 = _integer(1)
_workers = _integer(1, MAX_WORKERS)
_workers_or_none = _integer(0, MAX_WORKERS)
