"""Call a frontend with clients of OpenAI's API: `make interop-api`; one line per case.

python -m tests.interop.api ENVIRONMENTS [--engine ENGINE] [CLIENT …]    ENVIRONMENTS holds what the
Makefile installed there: an environment per client, and the source distribution of OpenAI's
"""

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.harness.cluster import cluster
from tests.support.engine.model import TRAINED

CLIENTS = ("openai", "litellm", "lm_eval")
HERE = Path(__file__).parent
SETTINGS = {"BATON_TELEMETRY_LOG_LEVEL": "error"}
RECOMMENDED = {"temperature": 0.75, "top_k": 20}
"""What the generation_config.json of the model says, besides what ends a text."""
SWITCH = """
{%- if add_generation_prompt and enable_thinking is defined and enable_thinking is false -%}
{{- '<think>\\n\\n</think>\\n\\n' -}}
{%- endif -%}"""
"""Behind a chat template: what Qwen3's does with the variable."""


def write_model(directory: Path) -> None:
    """Write Baton Tiny as a model whose template knows `enable_thinking`, and that recommends how
    to sample it."""
    shutil.copytree(TRAINED, directory, ignore=shutil.ignore_patterns("train"))
    config = json.loads((directory / "tokenizer_config.json").read_text())
    (directory / "chat_template.jinja").write_text(config["chat_template"] + SWITCH)
    write_infill_tokens(directory / "tokenizer.json")
    path = directory / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | RECOMMENDED))


def write_infill_tokens(path: Path) -> None:
    """Make the tokens that were merged last those by which Qwen 2.5 Coder is asked to fill in."""
    document = json.loads(path.read_text())
    model = document["model"]
    for text in ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"):
        pair = model["merges"].pop()
        merged = "".join(pair if isinstance(pair, list) else pair.split(" "))
        number = model["vocab"].pop(merged)
        model["vocab"][text] = number
        flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
        added = {"id": number, "content": text, "special": True, **flags}
        document["added_tokens"].append(added)
    document["added_tokens"].sort(key=lambda one: one["id"])
    path.write_text(json.dumps(document))


async def main(environments: Path, engine: str, clients: Sequence[str]) -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        model = Path(temporary) / "thinking"
        write_model(model)
        arguments = (f"--engine={engine}", f"--model={model}", "--prefill=1", "--decode=1")
        async with cluster(*arguments, settings=SETTINGS) as up:
            for name in clients:
                command = [
                    str(environments / name / "bin" / "python"),
                    str(HERE / f"with_{name}.py"),
                    f"http://{up.http}/v1",
                    up.model,
                    str(environments),
                ]
                ran = await asyncio.to_thread(
                    subprocess.run, command, timeout=900, env={"PATH": "/usr/bin:/bin"}
                )
                failures += ran.returncode != 0
    return failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.interop.api")
    parser.add_argument("environments", type=Path)
    parser.add_argument("clients", nargs="*", default=CLIENTS)
    parser.add_argument("--engine", choices=("torch", "vllm"), default="torch")
    asked = parser.parse_intermixed_args()
    sys.exit(asyncio.run(main(asked.environments.resolve(), asked.engine, asked.clients)))
