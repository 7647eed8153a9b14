"""Reference outputs of vLLM alone: `vllm_reference.py ASKED ANSWERED`, both JSON files.

Runs in its own process, as a process can have only one engine of vLLM. ASKED has `model`, `prompts`
and `output_tokens`. Without `sampling`, the output is stock vLLM's, greedy, by its `LLM`: for each
prompt its tokens and, for each token, the margin of the best logit over the next. With `sampling`,
it is the output of one vllm engine of Baton without a KV service, for each prompt and choice.
"""

import json
import sys
from pathlib import Path
from typing import Any

from baton.engine.testing.vllm_alone import KV_BYTES, stock
from baton.engine.vllm.environment import prepare
from baton.settings import EngineSettings


def engine(asked: dict[str, Any]) -> list[list[list[int]]]:
    """Send all requests to one engine of Baton at once."""
    from baton.engine.base import SequenceRequest
    from baton.engine.factory import create_engine
    from baton.engine.local import run_local
    from baton.sampling import SamplingParams

    own = create_engine(
        EngineSettings(
            kind="vllm",
            model=Path(asked["model"]),
            dtype="float32",
            threads=1,
            kv_bytes=KV_BYTES,
            adapters={name: Path(path) for name, path in asked["adapters"].items()},
        )
    )
    try:
        requests = []
        for index, prompt in enumerate(asked["prompts"]):
            options = dict(asked["sampling"][index])
            n, adapter = options.pop("n", 1), options.pop("adapter", "")
            params = SamplingParams.from_options(
                {"max_tokens": asked["output_tokens"], "ignore_eos": True} | options
            )
            for choice in range(n):
                number = len(requests)
                root = b"root" + adapter.encode()
                requests.append(
                    SequenceRequest(number, root, prompt, params, (choice,), adapter=adapter)
                )
        outputs = iter(run_local(own, requests))
        return [
            [next(outputs).tokens[choice] for choice in range(options.get("n", 1))]
            for options in asked["sampling"]
        ]
    finally:
        own.close_engine()


def main() -> None:
    """Write the outputs, and print nothing else."""
    asked = json.loads(Path(sys.argv[1]).read_text())
    prepare(EngineSettings(threads=1))
    answer = engine(asked) if "sampling" in asked else stock(asked)
    Path(sys.argv[2]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
