"""Check Baton's engines on one GPU: `make gpu-check`, which is `python -m bench.gpu [FAMILY…]`.

Each family is a tiny random checkpoint in bfloat16, in a process of its own, several at once:

    off        mean and largest difference of logprobs, for the tokens of the reference's outputs,
               from its own; the reference is vLLM alone if it is installed, else transformers
    different  tokens that are not the reference's, and `gap`: by how much at most the reference
               preferred its own where an output first differs, for sums in bfloat16 are rounded
    again …    tokens that changed when they were computed in another way (bench.families); `split`
               hands KV over from one engine to another on the same GPU

The torch engine is deterministic here: no way may change a token. Then bench.engine measures
whether sums in bfloat16 see the batch, and throughput beside vLLM and the GPU's limits. The vLLM
engine comes last. What does not fit into --seconds is not run, and named at the end.

Without a GPU, the exit code is 2. --device cpu tries the command itself on a CPU.
"""

import argparse
import sys
from typing import Any

import torch

from baton.version import commit
from bench.families.family import FAMILIES
from bench.gpu.check import GpuCheck
from bench.gpu.references import has_vllm
from bench.harness import cli

SECONDS = 480.0
NO_GPU = (
    "gpu-check needs a GPU, and torch finds none here: run it on a machine with one, with torch's "
    "build for CUDA."
)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    check = GpuCheck(options)
    print(f"{_device(options.device)}, torch {torch.__version__}, commit {commit() or 'unknown'}")
    engines = options.engines.split(",")
    if "torch" in engines:
        await check.families("torch")
    await check.benchmark("bench.engine.determinism", options.determinism)
    await check.benchmark("bench.engine.throughput", options.throughput)
    if has_vllm(options.device) and "vllm" in engines:
        await check.families("vllm")
    elif "vllm" in engines:
        print("the vLLM engine was not run: vLLM's build for this device is not installed")
    cli.write(options, check.found)
    if check.problems:
        raise SystemExit("\n".join(check.problems))
    return check.found


def _device(device: str) -> str:
    if device == "cpu":
        return "no GPU"
    found = torch.cuda.get_device_properties(torch.device(device))
    return f"{found.name}, {found.total_memory / 2**30:.0f} GiB"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--device", default="cuda", help="default: cuda")
    parser.add_argument("--engines", default="torch,vllm", help="default: torch,vllm")
    parser.add_argument(
        "--reference",
        choices=("vllm", "transformers"),
        default="vllm",
        help="vllm (default): transformers is used where it is not installed",
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit for all: 480")
    parser.add_argument("--at-once", type=int, default=4, help="families at once: 4")
    parser.add_argument("--beginnings", type=int, default=9, help="of 3 prompts each: 9")
    for name, default in (
        ("determinism", "--models 64M --answers 24"),
        ("throughput", "--size 1B --rounds 1"),
    ):
        text = f"arguments of bench.engine.{name}; empty: not run; default: {default}"
        parser.add_argument(f"--{name}", default=default, help=text)


def main() -> None:
    """Run the check; exit with 2 where there is no GPU."""
    given = {each.partition("=")[0] for each in sys.argv[1:]}
    if not given & {"--device", cli.SMALLEST, "-h", "--help"} and not torch.cuda.is_available():
        print(NO_GPU, file=sys.stderr)
        raise SystemExit(2)
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="llama --device cpu --engines torch --beginnings 1 --at-once 1 "
        "--reference transformers --determinism '--models tiny --answers 8 --rows alone' "
        "--throughput ''",
    )


if __name__ == "__main__":
    main()
