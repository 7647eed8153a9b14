"""vLLM's own AsyncLLM in a separate process, which answers each line of JSON with another.

Argument: JSON with the options of `peers.async_llm`. Requires `make vllm`. The engine is called in
its process (no HTTP), which is the best case for it.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from bench.engine.case import WARM_UP_STEPS, Case
from bench.serving.load.mixed import MixedLoad, run, to_json
from bench.vllm.arrivals import Arrivals, arrive


class Peer:
    """The available requests, a method each; responses are fit for JSON."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._ids = count(1)

    async def steps(self, case: list[int], turn: int) -> list[float]:
        """Return the seconds of each decode step of a `Case`, as seen by its client."""
        asked = Case(*case)
        done = asyncio.Event()
        enough = WARM_UP_STEPS + asked.steps
        slowest: list[float] = []
        waited = asked.batch

        async def read(prompt: list[int]) -> None:
            nonlocal waited, slowest
            times: list[float] = []
            async with aclosing(self.tokens(prompt, asked.steps + 64)) as counts:
                async for tokens in counts:
                    if not times:
                        waited -= 1
                        slowest = times  # of the request that started last, while all others run
                    times += [time.perf_counter()] * tokens
                    if waited == 0 and times is slowest and len(times) > enough:
                        done.set()

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(read(prompt)) for prompt in asked.prompts(turn)]
            await done.wait()
            for task in tasks:
                task.cancel()
        marks = slowest[WARM_UP_STEPS : enough + 1]
        return [after - before for before, after in pairwise(marks)]

    async def mixed(self, **load: Any) -> list[dict[str, Any]]:
        """Run a `MixedLoad`; return its requests."""
        return to_json(await run(self.tokens, MixedLoad(**load)))

    async def arrivals(self, **load: Any) -> list[dict[str, Any]]:
        """Run `Arrivals`; return its requests."""
        return to_json(await arrive(self.tokens, Arrivals(**load)))

    async def answer(
        self, prompt: list[int], output: int, transfer: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Process one prompt.

        Args:
            prompt: token ids.
            output: number of output tokens.
            transfer: `kv_transfer_params` of the request.

        Returns:
            `times`: when tokens came, on the clock that processes of this machine share; `tokens`;
                `transfer`: `kv_transfer_params` of the response.
        """
        times: list[float] = []
        tokens: list[int] = []
        params = None
        async for event in self._events(prompt, output, transfer):
            new = list(event.outputs[0].token_ids) if event.outputs else []
            times += [time.perf_counter()] * len(new)
            tokens += new
            params = event.kv_transfer_params or params
        return {"times": times, "tokens": tokens, "transfer": params}

    async def tokens(self, prompt: list[int], output: int) -> AsyncGenerator[int, None]:
        """Yield the number of received tokens, event by event."""
        async with aclosing(self._events(prompt, output, None)) as events:
            async for event in events:
                if event.outputs and event.outputs[0].token_ids:
                    yield len(event.outputs[0].token_ids)

    def _events(
        self, prompt: list[int], output: int, transfer: dict[str, Any] | None
    ) -> AsyncGenerator[Any, None]:
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        sampling = SamplingParams(
            temperature=0,
            max_tokens=output,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            extra_args={"kv_transfer_params": transfer} if transfer else None,
        )
        given = TokensPrompt(prompt_token_ids=prompt)
        events: AsyncGenerator[Any, None] = self._engine.generate(
            given, sampling, str(next(self._ids))
        )
        return events


def pin_workers(cores: list[int]) -> None:
    """Pin the main threads of vLLM's workers to their cores again.

    NixlConnector moves each worker's main thread to the last core of the machine, for its
    transfers. With one thread, which also computes, both engines would share that core.
    """
    parents: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):  # the process has ended
                parents[int(path.name)] = int(
                    (path / "stat").read_text().rpartition(")")[2].split()[1]
                )
    engines = [pid for pid, parent in parents.items() if parent == os.getpid()]
    for pid, parent in parents.items():
        if parent in engines and (Path("/proc") / str(pid) / "comm").read_text().startswith("VLLM"):
            os.sched_setaffinity(pid, cores)


async def main() -> None:
    asked = json.loads(sys.argv[1])
    os.sched_setaffinity(0, asked["cores"])
    # vLLM prints to standard output: redirect that to standard error, except responses.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import vllm
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    def say(answer: object) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    transfer = asked["transfer"]
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=asked["model"],
            dtype="bfloat16",
            max_model_len=4096,
            max_num_seqs=64,
            max_num_batched_tokens=asked["chunk_tokens"],
            enable_chunked_prefill=True,
            enforce_eager=True,
            skip_tokenizer_init=True,
            disable_log_stats=True,
            kv_transfer_config=KVTransferConfig(**transfer) if transfer else None,
        )
    )
    try:
        pin_workers(asked["worker_cores"])
        peer = Peer(engine)
        async for _ in peer.tokens(list(range(256, 512)), 4):
            pass
        say({"version": vllm.__version__})
        while line := await asyncio.to_thread(sys.stdin.readline):
            question = json.loads(line)
            say(await getattr(peer, question.pop("ask"))(**question))
    finally:
        engine.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
