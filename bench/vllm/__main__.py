"""vLLM as Baton's engine compared with vLLM alone: `python -m bench.vllm [--only PART …]`.

Both sides run in the same invocation, in turns, and the best round counts, since the machine may
have other work. Parts, each a table:

    steps       a decode step at batch 1, 8 and 32
    load        time to first token and between tokens while prompts of 64 to 1,500 tokens arrive
    handover    the handover's part of the time to first token of a 2,000-token prompt
    connectors  the same handover by vLLM's NixlConnector and OffloadingConnector
    draws       what exact sampling adds to a step
    memory      the memory of a cluster's processes, and its start-up time

Requires `make vllm`, and two cores. `connectors` requires the module `nixl`: `pip install --no-deps
--target build/nixl nixl==1.5.1`.
"""

import argparse
from pathlib import Path
from typing import Any

from bench.harness import ROOT, cli
from bench.harness.checkpoints import SIZES
from bench.vllm import connectors, draws, handover, load, memory, steps

PARTS = {
    "steps": steps.measure,
    "load": load.measure,
    "handover": handover.measure,
    "connectors": connectors.measure,
    "draws": draws.measure,
    "memory": memory.measure,
}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, part in PARTS.items():
        if name in (options.only or PARTS):
            found[name] = await part(options)
            cli.write(options, found)
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; may be repeated")
    parser.add_argument("--requests", type=int, default=16, help="load: number of requests")
    parser.add_argument("--rate", type=float, default=2.0, help="load: requests per second")
    parser.add_argument(
        "--prompts", type=int, default=8, help="handover, connectors: number of prompts"
    )
    parser.add_argument(
        "--draws-size", choices=SIZES, default="292M", help="draws: size of the model"
    )
    parser.add_argument(
        "--nixl", type=Path, default=ROOT / "build" / "nixl", help="connectors: directory of `nixl`"
    )


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        rounds=3,
        smallest="--only steps --rounds 1",
        needs="what make vllm installs",
    )
