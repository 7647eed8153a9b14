"""Whether outputs in bfloat16 depend on how they are computed.

Half of the outputs are greedy, half are sampled with a seed. Each is computed alone on one thread,
and again in every way in which a cluster may compute it. A row counts the outputs that changed.

    python -m bench.engine.determinism [--models tiny,64M,292M,/a/checkpoint] [--answers 120]
        [--rows split,moved] [--deterministic off] [--device cuda] [--json FILE --resume]

292M takes half an hour of a core. FILE is written after every 8 outputs of a row. With --resume, a
run continues from FILE and prints one table of all results; it rejects a FILE of other operators.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from bench.engine.ways import AT_ONCE, TOKENS, Ways, requests
from bench.harness import ROOT, cli
from bench.harness.checkpoints import random_llama
from bench.harness.table import Table

Results = dict[str, dict[str, Any]]


def measure(options: argparse.Namespace) -> Results:
    results = read(options)
    for name in options.models.split(","):
        model = ROOT / "models" / "baton-tiny" if name == "tiny" else model_of(name)
        ways = Ways(model, options.deterministic, options.device)
        info = ways.here.info
        computed_by = {
            "layout": info.layout.layout_id.hex(),
            "features": list(info.features),
        }
        of_model = results.setdefault(name, {"by": computed_by, "alone": [], "rows": {}})
        if of_model["by"] != computed_by:
            raise SystemExit(f"{options.json} has {name} of {of_model['by']}: write another file")
        batch = requests(options.answers, info.vocab_tokens)
        for at in range(len(of_model["alone"]), options.answers, AT_ONCE):
            of_model["alone"] += ways.alone(batch[at : at + AT_ONCE])
            cli.write(options, results)
        expected = [tuple(tokens) for tokens in of_model["alone"]]
        rows = {
            row: compute
            for row, compute in ways.rows().items()
            if any(part in row for part in options.rows.split(","))
        }
        if not rows:
            raise SystemExit(f"--rows {options.rows} is part of none of: {'; '.join(ways.rows())}")
        for row, compute in rows.items():
            count = of_model["rows"].setdefault(row, {"compared": 0, "greedy": 0, "drawn": 0})
            for at in range(count["compared"], options.answers, AT_ONCE):
                part = expected[at : at + AT_ONCE]
                found = compute(batch[at : at + AT_ONCE], part)
                differ = [a != b for a, b in zip(found, part, strict=True)]
                count["compared"] += len(part)
                count["greedy"] += sum(differ[::2])
                count["drawn"] += sum(differ[1::2])
                cli.write(options, results)
        show(name, of_model)
    if options.deterministic == "required":
        changed = {
            f"{name}, {row}"
            for name, of_model in results.items()
            for row, count in of_model["rows"].items()
            if count["greedy"] or count["drawn"]
        }
        if changed:
            raise SystemExit(f"deterministic operators, and outputs changed: {sorted(changed)}")
    return results


def model_of(name: str) -> Path:
    """Return the directory of a random model, or a directory that is named itself."""
    return Path(name) if "/" in name else random_llama(name)


def read(options: argparse.Namespace) -> Results:
    """Return the results of an earlier run to continue."""
    if options.answers % AT_ONCE:
        raise SystemExit(f"--answers is a multiple of {AT_ONCE}")
    if not options.resume:
        return {}
    if options.json is None:
        raise SystemExit("--resume requires --json FILE: the run to continue")
    if not options.json.exists():
        return {}
    results: Results = json.loads(options.json.read_text())["results"]
    return results


def show(name: str, of_model: dict[str, Any]) -> None:
    """Print the table of a model."""
    print(f"{name}: answers of {TOKENS} tokens, {of_model['by']['features']}")
    table = Table(("changed", "<31"), ("compared", "8d"), ("greedy", "6d"), ("drawn", "6d"))
    for row, count in of_model["rows"].items():
        table.row(row, count["compared"], count["greedy"], count["drawn"])


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", default="tiny,64M,292M", help="default: tiny,64M,292M")
    parser.add_argument("--answers", type=int, default=120, help="outputs per model; default: 120")
    parser.add_argument("--rows", default="", help="only rows whose name contains one of these")
    parser.add_argument("--deterministic", default="required", help="required (default) or off")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--resume", action="store_true", help="continue the run in --json's file")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--models tiny --answers 8 --rows cut")
