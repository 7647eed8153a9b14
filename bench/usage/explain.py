"""What it costs to keep ended requests, and how soon a slow one of six hours ago is explained.

    python -m bench.usage.explain [--requests 200000] [--megabytes 256] [--json FILE]

Three requests are slow: a store that was frozen, a worker that was throttled, a long queue. Then
come the others, spread over six hours of an injected clock: 1 % of them slow, 0.2 % failed, and a
hundredth of the rest is sampled. Each passes what a frontend and a router do with it besides
serving it: its path and record are made, the rule decides, and what is kept goes with a decision of
eight candidates to a real disk. At last the history is opened as by a router that was restarted,
and the three are looked for.

CPU is of the process, its writing thread included, with and without all that; the difference is
also a share of `--request-ms`, what a request of 256 tokens takes in a frontend and a router.
"""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from baton.history.cause import cause_of
from baton.history.history import History
from baton.internal.v1 import router_pb2
from baton.request.stream_events import FinishReason
from baton.usage.path import RequestPath
from baton.usage.record import LOST, RecordIds, UsageRecord
from baton.v1 import common_pb2
from bench.harness import cli
from bench.harness.table import Table
from services.frontend.generation.accounting.keeping import RequestKeeper
from services.frontend.generation.accounting.metering import RequestMeter
from services.frontend.generation.state.usage import RequestUsage
from services.frontend.placement.placement import Placement
from services.frontend.workers.stream import Phase
from services.router.api.keeper import RequestHistory

HOURS = 6
NOW = 1_800_000_000.0
USUAL = {"queue": 0.0, "wait": 0.01, "prefill": 0.3, "decode": 2.0}
SLOW = {
    "a frozen store": ("transfer", {"wait": 9.0}),
    "a throttled worker": ("prefill", {"prefill": 12.0}),
    "a long queue": ("router queue", {"queue": 30.0}),
}
CANDIDATES = 8
NO_PATH = RequestPath()
PROMPT_TOKENS, OUTPUT_TOKENS = 1024, 256
SLOW_RATIO, FAILED_RATIO, SAMPLE_RATIO = 0.01, 0.002, 0.01
PER_TURN = 100
"""Requests that end before the loop has time for others; fewer than wait for the disk at most."""


class FixedDecisions:
    """Explains each request by the same decision."""

    def __init__(self) -> None:
        self._decision = router_pb2.Explanation(request_id="r", tenant="acme", model="org/model")
        for number in range(CANDIDATES):
            self._decision.candidates.add(
                decode_worker=f"decode-7c9f8d6b5-{number}",
                prefill_worker=f"prefill-7c9f8d6b5-{number}",
                chosen=not number,
                score=0.5 + number,
                queue_seconds=0.1,
                prefill_seconds=0.3,
                needed_pages=64,
                free_pages=1000,
                total_pages=2000,
            )

    def decisions(self, _: str, __: int) -> list[router_pb2.Explanation]:
        """Return a copy of the decision."""
        copy = router_pb2.Explanation()
        copy.CopyFrom(self._decision)
        return [copy]


class Frontend:
    """What a frontend does with a request that ends, besides serving it."""

    def __init__(self, keeper: RequestKeeper | None) -> None:
        """None: requests have no path, and none is kept, as before there was a history."""
        self._keeper = keeper
        self._on_ended = _nothing if keeper is None else keeper.ended
        self._ids = RecordIds()
        self._context = common_pb2.RequestContext(priority=common_pb2.PRIORITY_CLASS_INTERACTIVE)
        decision = router_pb2.Placement()
        decision.decode.instance_id = "decode-7c9f8d6b5-0"
        decision.prefill.instance_id = "prefill-7c9f8d6b5-0"
        prediction = decision.prediction
        prediction.prefill_seconds, prediction.transfer_seconds = 0.3, 0.01
        prediction.token_seconds, prediction.local_tokens = 0.03, 512
        prediction.reason = (
            "prefill-7c9f8d6b5-0 computes 512 of 1024 tokens for decode-7c9f8d6b5-0; "
            "decode-7c9f8d6b5-0 alone would take 412 ms, not 311 ms"
        )
        self._decision = decision
        self._usage = common_pb2.Usage(
            prompt_tokens=PROMPT_TOKENS, cached_tokens=512, computed_tokens=512, queue_seconds=0.001
        )

    def serve(self, request_id: str, at: float, outcome: str, **times: float) -> None:
        """End a request that took these seconds.

        Args:
            request_id: its id.
            at: when it began, in seconds since the Unix epoch.
            outcome: how it ended.
            times: what differs from the usual.
        """
        took = {**USUAL, **times}
        arrived = time.monotonic() - sum(took.values())
        placed = arrived + took["queue"]
        usage = RequestUsage(PROMPT_TOKENS, arrived)
        placement = Placement(
            self._decision, None, "router-0", 0, queued_seconds=took["queue"], store="kvstore-3"
        )
        usage.add_placement(placement, arrived, placed)
        usage.first_token_at = placed + took["wait"] + took["prefill"]
        stream: Any = SimpleNamespace(
            phase=Phase.PREFILL,
            instance="prefill-7c9f8d6b5-0",
            begun_at=placed,
            first_at=usage.first_token_at,
            cached_tokens=512,
            kv_wait_seconds=took["wait"],
        )
        usage.add_stream(stream, self._usage, usage.first_token_at)
        record = UsageRecord(
            id=self._ids.draw(int(at * 1e3)),
            request_id=request_id,
            tenant="acme",
            tier="pro",
            model="org/model",
            weights="7f" * 32,
            operation="chat",
            frontend="frontend-0",
            began_ms=int(at * 1e3),
            prompt_tokens=PROMPT_TOKENS,
            outcome=LOST,
        )
        progress: Any = SimpleNamespace(
            usage=usage,
            outputs=[SimpleNamespace(reason=FinishReason.STOP)],
            output_tokens=OUTPUT_TOKENS,
        )
        meter = RequestMeter(None, self._on_ended, record, arrived)
        path = NO_PATH
        if self._keeper is not None:
            path = usage.path(self._context, time.monotonic())
        meter.end(progress, outcome, None, path)


def _nothing(_: UsageRecord, __: str) -> bool:
    return False


def bytes_of(path: Path) -> int:
    """Return the bytes of a directory's files."""
    return sum(file.stat().st_size for file in path.iterdir())


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print what it costs, and a line per slow request."""
    draw, wall = random.Random(1), NOW - HOURS * 3600
    results: list[dict[str, Any]] = []
    max_bytes = int(options.megabytes * 1e6)
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as scratch:
        path = Path(scratch)
        async with History(path, max_bytes, 48 * 3600, lambda: wall) as history:
            keeping: Any = FixedDecisions()
            kept = RequestHistory(keeping, history)

            def send(ended: router_pb2.KeepRequest, _: str) -> bool:
                kept.keep(ended)
                return True

            frontend = Frontend(RequestKeeper(send, SAMPLE_RATIO, draw.random))
            for name, (_, times) in SLOW.items():
                frontend.serve(name, wall, "ok", **times)
            each = []
            for one in (Frontend(None), frontend):
                began = time.process_time()
                for number in range(options.requests):
                    wall = NOW - HOURS * 3600 * (1 - (number + 1) / options.requests)
                    kind = draw.random()
                    times = {"prefill": 9.0} if kind < SLOW_RATIO else {}
                    outcome = "WORKER_LOST" if kind > 1 - FAILED_RATIO else "ok"
                    one.serve(f"req-{number:024x}", wall, outcome, **times)
                    if not number % PER_TURN:
                        await asyncio.sleep(0)  # other work of the process
                await history.find("")  # all is written
                each.append((time.process_time() - began) / options.requests * 1e6)
        used = bytes_of(path)
        share = (each[1] - each[0]) / options.request_ms / 10
        print(
            f"{options.requests} requests: {each[1]:.1f} us of CPU each, {each[0]:.1f} without "
            f"path and history: {share:.2f} % of {options.request_ms:g} ms"
        )
        print(f"{used / 1e6:.1f} of {max_bytes / 1e6:g} MB on disk")
        results.append({"cpu_us": each, "bytes": used, "max_bytes": max_bytes})
        table = Table(("slow because of", "<20"), ("found s", "8.3f"), ("cause", "<60"))
        for name, (phase, _) in SLOW.items():
            async with History(path, max_bytes, 48 * 3600, lambda: NOW) as restarted:
                began = time.perf_counter()
                (found,) = (await restarted.find(name)).kept
                cause = cause_of(found.record)
                seconds = time.perf_counter() - began
            table.row(name, seconds, cause)
            if f"because of {phase}:" not in cause:
                raise SystemExit(f"{name}: {phase} was expected")
            results.append({"name": name, "seconds": seconds, "cause": cause})
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--requests", type=int, default=200_000, help="default: 200,000")
    parser.add_argument("--megabytes", type=float, default=256, help="default: 256")
    parser.add_argument(
        "--request-ms", type=float, default=3.0, help="CPU of a request, in ms; default: 3"
    )


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--requests 2000 --megabytes 2")
