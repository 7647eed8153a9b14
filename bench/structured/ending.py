"""Whether JSON outputs end if their schemas set no bounds: `python -m bench.structured.ending`.

Baton Tiny, with each schema and several seeds, at its recommended parameters and at temperature 1,
with the bounds that frontends set. Prints how many outputs ended by themselves and are valid, and
the most tokens of an output.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
from tokenizers import Tokenizer

from baton.engine.base import Engine, SequenceRequest
from baton.engine.checkpoint.sampling_defaults import read_sampling_defaults
from baton.engine.events import EndReason
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.host.bundled import root
from baton.request.grammar import Grammar
from baton.sampling import SamplingParams
from baton.settings import EngineSettings, TextSettings
from baton.structured.json_schema.bounds import Bounds
from bench.harness import cli
from bench.harness.table import Table

MODEL = root() / "models" / "baton-tiny"
MAX_TOKENS = 1024
WAYS = {"recommended": read_sampling_defaults(MODEL), "temperature 1": SamplingParams()}
PROMPTS = ("Give me x", "hi", "Answer in JSON", "Make up an object", "What is the size of a fox?")
SCHEMAS: Mapping[str, Any] = {
    "{x: integer}": {
        "type": "object",
        "properties": {"x": {"type": "integer"}},
        "required": ["x"],
        "additionalProperties": False,
    },
    "number": {"type": "number"},
    "nested object": {
        "type": "object",
        "properties": {
            "a": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer"},
                    "b": {"type": "object", "properties": {"m": {"type": "number"}}},
                },
                "required": ["n", "b"],
            }
        },
        "required": ["a"],
    },
    "list of numbers": {"type": "array", "items": {"type": "number"}},
    "any object": {"type": "object"},
}


@dataclass(frozen=True, slots=True)
class Row:
    """The results of one schema."""

    asked: int
    ended: int
    """Outputs that ended by themselves."""
    valid: int
    most_tokens: int


def answers(engine: Engine, schema: Any, sampling: SamplingParams, count: int) -> Row:
    """Send one schema with `count` seeds."""
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    text = TextSettings()
    bounds = Bounds(text.json_max_digits, text.json_max_levels)
    grammar = Grammar.of("json_schema", bounds.added_to(json.dumps(schema)))
    requests = []
    for seed in range(count):
        asked = PROMPTS[seed % len(PROMPTS)]
        prompt = f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n"
        own = msgspec.structs.replace(
            sampling,
            seed=seed,
            grammar=grammar,
            max_tokens=MAX_TOKENS,
            stop_token_ids=tuple(engine.info.eos_token_ids),
        )
        ids = tokenizer.encode(prompt).ids
        requests.append(SequenceRequest(id=seed + 1, root=b"ending", prompt=ids, sampling=own))
    ended = valid = most = 0
    for output in run_local(engine, requests):
        most = max(most, len(output.tokens[0]))
        if output.ended is None or output.ended.reasons[0] is not EndReason.STOP:
            continue
        ended += 1
        jsonschema.validate(json.loads(tokenizer.decode(output.tokens[0])), schema)
        valid += 1
    return Row(count, ended, valid, most)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print a row per schema and sampling."""
    engine = create_engine(EngineSettings(model=options.model, dtype="float32"))
    table = Table(
        ("schema", "<16"),
        ("sampling", "<14"),
        ("asked", "6d"),
        ("ended", "6d"),
        ("valid", "6d"),
        ("most tokens", "11d"),
    )
    found = []
    for name in options.schemas:
        schema = SCHEMAS[name]
        for way, sampling in WAYS.items():
            row = answers(engine, schema, sampling, options.count)
            table.row(name, way, row.asked, row.ended, row.valid, row.most_tokens)
            found.append({"schema": name, "sampling": way, **asdict(row)})
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", type=Path, default=MODEL, help="a model with Baton Tiny's tokenizer"
    )
    parser.add_argument("--count", type=int, default=10, help="seeds per row")
    parser.add_argument("--schemas", nargs="+", choices=SCHEMAS, default=list(SCHEMAS))


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--count 1 --schemas number")
