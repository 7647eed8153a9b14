"""Rules of `auto` on labelled prompts: `python -m bench.auto.agreement`.

Two generators write prompts of known kinds, each with the cheapest model that is meant to suffice.
The rules (bench/auto/rules.toml) were tuned on the first; the second was written before them, and
is not used to change them. Quality is agreement with labels, not answers that were judged: the
large model suffices for all prompts, the small one for those labelled small. Costs are those of
assumed lengths at OpenAI's list prices of gpt-4o and gpt-4o-mini.

Prints, per generator, the share of prompts whose first model is the label; the share that gets a
model that suffices, compared with always the small one; costs relative to always the large one, of
the rules and of the labels; and the time of a choice, from the parsed request to the ordered list,
the fastest of the rounds for each prompt.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from baton.auto.features import RequestFeatures
from baton.auto.rules import CompiledRules
from baton.cli.admin.auto.commands import read_rules
from baton.request.prices import Price
from baton.tenancy.directory.principal import LOCAL
from bench.auto.held_out import held_out
from bench.auto.prompts import LARGE, SMALL, LabelledPrompt
from bench.auto.tuning import tuning
from bench.harness import cli
from bench.harness.stats import percentile
from bench.harness.table import Table
from services.frontend.generation.resolution.auto import features_of
from services.frontend.openai.request.decode import read_chat
from services.frontend.openai.request.parse import RequestNames, chat_request
from services.frontend.requests.request import GenerationRequest

RULES = Path(__file__).with_name("rules.toml")
PRICES = {SMALL: Price.parse("0.15/0.60"), LARGE: Price.parse("2.50/10")}


def request_of(prompt: LabelledPrompt) -> GenerationRequest:
    """Return a prompt as the frontend parses it."""
    body = {"model": "auto", "messages": prompt.messages, **prompt.fields}
    return chat_request(read_chat(msgspec.json.encode(body)), RequestNames("", ""), 1000)


def costs(
    prompts: Sequence[LabelledPrompt], features: Sequence[RequestFeatures], models: Sequence[str]
) -> int:
    """Return what prompts cost with these models, in nano-dollars."""
    return sum(
        PRICES[model].cost(one.prompt_tokens, 0, prompt.output_tokens)
        for prompt, one, model in zip(prompts, features, models, strict=True)
    )


def chosen(
    rules: CompiledRules, prompts: Sequence[LabelledPrompt], rounds: int
) -> tuple[list[RequestFeatures], list[str], list[str], list[float]]:
    """Return features, models and rules of prompts, and the fastest time of each choice."""
    requests = [request_of(prompt) for prompt in prompts]
    times = [float("inf")] * len(requests)
    for _ in range(rounds):
        for index, request in enumerate(requests):
            began = time.perf_counter()
            rules.choose(features_of(request, LOCAL))
            times[index] = min(times[index], time.perf_counter() - began)
    features = [features_of(request, LOCAL) for request in requests]
    choices = [rules.choose(one) for one in features]
    return features, [one.models[0] for one in choices], [one.rule for one in choices], times


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    rules = CompiledRules(read_rules(RULES))
    table = Table(
        *(("generator", "<9"), ("prompts", "7"), ("large", "5"), ("agree", "6.1%")),
        *(("suffices", "8.1%"), ("small suffices", "14.1%"), ("cost", "6.3f")),
        *(("of labels", "9.3f"), ("us p50", "6.1f"), ("p99", "6.1f"), ("max", "6.1f")),
    )
    found = []
    for name, generator in (("tuning", tuning), ("held out", held_out)):
        prompts = generator(options.prompts, options.seed)
        features, models, names, times = chosen(rules, prompts, options.rounds)
        labels = [prompt.label for prompt in prompts]
        count = len(prompts)
        most = costs(prompts, features, [LARGE] * count)
        agree = sum(map(str.__eq__, models, labels)) / count
        enough = sum(
            model == LARGE or label == SMALL for model, label in zip(models, labels, strict=True)
        )
        row = {
            "generator": name,
            "prompts": count,
            "large": labels.count(LARGE),
            "agree": agree,
            "suffices": enough / count,
            "small_suffices": labels.count(SMALL) / count,
            "cost": costs(prompts, features, models) / most,
            "labels_cost": costs(prompts, features, labels) / most,
            **{f"us_{p}": percentile(times, p) * 1e6 for p in (50, 99, 100)},
        }
        table.row(*row.values())
        found.append(row)
        if options.wrong and name == "tuning":
            _print_wrong(prompts, models, names)
    return found


def _print_wrong(
    prompts: Sequence[LabelledPrompt], models: Sequence[str], names: Sequence[str]
) -> None:
    """Print the kinds of prompts whose choice is not their label, by rule."""
    wrong = Counter(
        (prompt.label, prompt.kind, name)
        for prompt, model, name in zip(prompts, models, names, strict=True)
        if model != prompt.label
    )
    for (label, kind, name), count in wrong.most_common():
        print(f"  {count} {kind} ({label}): {name or 'no rule'}")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompts", type=int, default=500, help="per generator; default: 500")
    parser.add_argument("--seed", type=int, default=1, help="of the generators; default: 1")
    parser.add_argument(
        "--wrong", action="store_true", help="print the wrong choices of the tuning generator"
    )


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, rounds=20, smallest="--rounds 1 --prompts 100")
