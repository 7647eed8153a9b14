"""How near the engine is to the machine's limit, beside vLLM: `python -m bench.engine.throughput`.

A random Llama of 292M parameters in bfloat16. Decode: tokens per second at batch 1, 8 and 32 after
512-token prompts; prefill: prompt tokens per second. The engines take turns, case by case, with the
same prompts; the best of the rounds counts, since the machine may have other work. The limit of
decode is the chain of linear maps plus reading the KV once; of prefill, the chain plus attention's
arithmetic at the chain's pace.

    python -m bench.engine.throughput [--device cuda] [--rounds 3] [--native off] [--json FILE]

vLLM joins where `make bench-peers` installed it. A GPU's figures come with --device cuda.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from baton.engine.base import Admitted, Engine, SequenceRequest, Tokens
from baton.engine.factory import create_engine
from baton.engine.model_config import ModelConfig, read_config
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.engine.torch.checkpoint import read_weights
from baton.engine.torch.model import element_type
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from bench.engine.case import CASES, CHUNK_TOKENS, CLOCKS, SETTLE_STEPS, VOCAB, Case
from bench.engine.limits import Chain, PlainChain, matmul_rate, read_bandwidth

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "build" / "peers" / "bin" / "python"
SIZES = {
    "292M": {"layers": 24, "hidden": 1024, "mlp": 2816, "heads": 16, "kv_heads": 8},
    "1B": {"layers": 16, "hidden": 2048, "mlp": 8192, "heads": 32, "kv_heads": 8},
    "8B": {"layers": 32, "hidden": 4096, "mlp": 14336, "heads": 32, "kv_heads": 8},
}
HEAD_SIZES = {"292M": 64, "1B": 64, "8B": 128}
Results = dict[str, list[float]]


def checkpoint(size: str) -> Path:
    """A random checkpoint, written once."""
    path = ROOT / "build" / "bench" / f"llama-{size}"
    if not (path / "tokenizer_config.json").exists():
        print(f"writing {path}", file=sys.stderr)
        write_random_checkpoint(
            path,
            vocab=VOCAB,
            head_size=HEAD_SIZES[size],
            context=4096,
            dtype="bfloat16",
            **SIZES[size],
        )
    return path


class Ours:
    """The embedded engine, in this process."""

    def __init__(self, options: argparse.Namespace, model: Path) -> None:
        settings = EngineSettings(
            model=model,
            device=options.device,
            native=options.native,
            threads=options.threads,
            chunk_tokens=options.chunk_tokens,
            kv_bytes=options.kv_bytes,
        )
        self._now = CLOCKS[options.clock]
        began = time.perf_counter()
        self._engine: Engine = create_engine(settings)
        self._engine.warm_up()
        self.start_seconds = time.perf_counter() - began
        self._next_id = 0

    def run(self, case: Case, turn: int) -> float:
        """Seconds of the timed part."""
        engine = self._engine
        drawn: dict[int, int] = {}
        sampling = SamplingParams(
            temperature=0, max_tokens=case.steps + 64 if case.steps else 1, ignore_eos=True
        )
        ids = []
        began = self._now()
        for prompt in case.prompts(turn):
            asked = SequenceRequest(self._next_id, b"bench", tuple(prompt), sampling)
            engine.add(asked)
            ids.append(self._next_id)
            self._next_id += 1

        def step() -> None:
            for event in engine.step():
                if isinstance(event, Admitted):
                    engine.start(event.id, event.cached_tokens)
                elif isinstance(event, Tokens):
                    drawn[event.id] = drawn.get(event.id, 0) + len(event.token_ids)

        while len(drawn) < case.batch:
            step()
        if case.steps:
            for _ in range(SETTLE_STEPS):
                step()
            began = self._now()
            for _ in range(case.steps):
                step()
        seconds = self._now() - began
        for each in ids:
            engine.close(each)
        if not case.steps:
            engine.evict_blocks()
        return seconds


class Vllm:
    """vLLM in a process and a venv of its own."""

    def __init__(self, options: argparse.Namespace, model: Path) -> None:
        cores = sorted(os.sched_getaffinity(0))[: options.threads]
        env = {
            **os.environ,
            "VLLM_CPU_OMP_THREADS_BIND": options.bind or ",".join(map(str, cores)),
            "VLLM_CPU_KVCACHE_SPACE": "4",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        self._log = (ROOT / "build" / "bench" / "vllm.log").open("w")
        self._process = subprocess.Popen(
            [str(PEERS), "-m", "bench.engine.peer_vllm", str(model), options.clock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env=env,
        )
        self.version = self._answer()["version"]

    def run(self, case: Case, turn: int) -> float:
        """Seconds of the timed part."""
        assert self._process.stdin is not None
        asked = {"case": (case.batch, case.prompt, case.steps), "turn": turn}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return float(self._answer()["seconds"])

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"vLLM stopped: see {self._log.name}")
        return dict(json.loads(line))


def take_turns(engines: dict[str, Any], cases: list[Case], rounds: int) -> dict[str, Results]:
    """Seconds by case and engine, one per round. The first round warms up and does not count."""
    found: dict[str, Results] = {case.name: {name: [] for name in engines} for case in cases}
    for turn in range(rounds + 1):
        for case in cases:
            # Who comes first changes from round to round.
            for name in list(engines)[:: 1 if turn % 2 else -1]:
                seconds = engines[name].run(case, turn)
                if turn:
                    found[case.name][name].append(seconds)
    return found


def limits(options: argparse.Namespace, model: Path, cases: list[Case]) -> dict[str, Any]:
    """Seconds that each case cannot go below, with what they are made of."""
    device = torch.device(options.device)
    config = read_config(model)
    dtype = element_type(config.dtype)
    with torch.inference_mode():
        chain = Chain(config, read_weights(model, config, dtype, device))
        plain = PlainChain(config, chain)
        bandwidth = read_bandwidth(device, options.clock)
        answer: dict[str, Any] = {
            "read_gb_per_second": bandwidth / 1e9,
            "matmul_tflops": matmul_rate(device, dtype, options.clock) / 1e12,
            "cases": {
                case.name: _limit(
                    case, config, (chain, plain), bandwidth, dtype.itemsize, options.clock
                )
                for case in cases
            },
        }
    return answer


def _limit(
    case: Case,
    config: ModelConfig,
    chains: tuple[Chain, Chain],
    bandwidth: float,
    itemsize: int,
    clock: str,
) -> dict[str, float]:
    chain, plain = chains
    if case.steps:
        context = case.prompt + SETTLE_STEPS + case.steps / 2
        kv_bytes = 2 * config.layers * config.kv_heads * config.head_size * itemsize
        rest = case.batch * context * kv_bytes / bandwidth
        linear = chain.seconds(case.batch, case.batch, clock)
        torch_linear = plain.seconds(case.batch, case.batch, clock)
        steps = case.steps
    else:
        tokens = case.batch * case.prompt
        step = min(tokens, CHUNK_TOKENS)
        steps = tokens / step
        linear = chain.seconds(step, 1, clock)
        torch_linear = plain.seconds(step, 1, clock)
        pairs = case.batch * case.prompt * (case.prompt + 1) / 2
        operations = 4 * config.layers * config.heads * config.head_size * pairs / steps
        rest = operations * linear / (2 * chain.layer_values * step)
    return {
        "seconds": steps * (linear + rest),
        "chain_seconds": steps * linear,
        "torch_linear_seconds": steps * torch_linear,
        "attention_seconds": steps * rest,
    }


def show(results: dict[str, Any], cases: list[Case]) -> None:
    """The table."""
    found = results["limits"]
    print(
        f"{results['cpu']}, {results['threads']} threads, {results['clock']} time, torch "
        f"{torch.__version__}, native {results['native']}"
    )
    print(
        f"reads {found['read_gb_per_second']:.1f} GB/s, multiplies "
        f"{found['matmul_tflops']:.2f} TFLOP/s, starts in {results['start_seconds']:.1f} s"
    )
    peers = [name for name in next(iter(results["seconds"].values())) if name != "baton"]
    columns = ["tok/s", *[part for name in peers for part in (name, "ratio")], "limit", "of it"]
    columns += ["chain", "torch"]
    print(f"{'':18}" + "".join(f"{column:>9}" for column in columns))
    for case in cases:
        tokens = case.batch * (case.steps or case.prompt)
        seconds = {name: min(each) for name, each in results["seconds"][case.name].items()}
        limit = found["cases"][case.name]
        row = [f"{tokens / seconds['baton']:9.0f}"]
        for name in peers:
            row += [f"{tokens / seconds[name]:9.0f}", f"{seconds[name] / seconds['baton']:9.2f}"]
        row += [f"{tokens / limit['seconds']:9.0f}", f"{limit['seconds'] / seconds['baton']:9.2f}"]
        row += [f"{tokens / limit[key]:9.0f}" for key in ("chain_seconds", "torch_linear_seconds")]
        print(f"{case.name:18}" + "".join(row))
    print("chain: the linear maps alone, as the engine has them; torch: with torch's own linear")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", choices=SIZES, default="292M")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--native", choices=("auto", "off", "required"), default=None)
    parser.add_argument("--chunk-tokens", type=int, default=CHUNK_TOKENS)
    parser.add_argument("--kv-bytes", type=int, default=2 << 30)
    parser.add_argument("--cases", default="", help="only those whose name contains this")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--bind", default="", help="vLLM's cores; empty: the first")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: with --threads 1")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    options = parser.parse_args()
    if options.native is None:
        options.native = "required" if options.device == "cpu" else "off"
    torch.set_num_threads(options.threads)
    cases = [case for case in CASES if options.cases in case.name]
    model = checkpoint(options.size)
    found = limits(options, model, cases)
    ours = Ours(options, model)
    engines: dict[str, Any] = {"baton": ours}
    peer = None
    if options.device == "cpu" and PEERS.exists() and not options.no_peers:
        peer = engines["vllm"] = Vllm(options, model)
    try:
        seconds = take_turns(engines, cases, options.rounds)
    finally:
        if peer is not None:
            peer.close()
    results = {
        "cpu": _cpu(),
        "device": options.device,
        "size": options.size,
        "threads": options.threads,
        "native": options.native,
        "chunk_tokens": options.chunk_tokens,
        "clock": options.clock,
        "torch": torch.__version__,
        "vllm": peer.version if peer else None,
        "start_seconds": ours.start_seconds,
        "limits": found,
        "seconds": seconds,
    }
    show(results, cases)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
