"""Ask a served model what newcomers type first: `python -m train.newcomers --address HOST:PORT`.

Each message begins a chat of its own by `baton chat`, with what the model recommends.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from train.card import put
from train.first_messages import FIRST_MESSAGES
from train.sense import sensible

SEEDS = (1, 2, 3)
_USAGE = re.compile(r"^\d+ tokens? in .*\n", re.MULTILINE)
"""The line behind each answer."""


def ask(address: str, seed: int, messages: Sequence[str]) -> list[str]:
    """Return the answers of `baton chat`.

    Raises:
        RuntimeError: it did not answer all of them.
    """
    baton = [sys.executable, "-m", "baton", "chat", "--address", address, "--seed", str(seed)]
    typed = "\n/new\n".join(messages) + "\n"
    done = subprocess.run(baton, input=typed, capture_output=True, text=True, check=False)
    answers = [one.strip() for one in _USAGE.split(done.stdout)[:-1]]
    if done.returncode or len(answers) != len(messages):
        raise RuntimeError(f"baton chat gave {len(answers)} answers: {done.stderr.strip()}")
    return answers


def table(of_seeds: Sequence[Sequence[str]]) -> str:
    """Return a table of all answers in Markdown, with how many make sense for each seed."""
    messages = [message for message, _ in FIRST_MESSAGES]
    right = [sum(map(sensible, messages, answers)) for answers in of_seeds]
    counted = ", ".join(f"{count} of {len(messages)}" for count in right)
    lines = [
        f"Sensible: {counted}, by seed. ✗ stands before an answer that is not.",
        "",
        "| first message | " + " | ".join(f"seed {seed}" for seed in SEEDS) + " |",
        "|---|" + "---|" * len(SEEDS),
    ]
    for at, message in enumerate(messages):
        cells = [_cell(message, answers[at]) for answers in of_seeds]
        lines.append(f"| {message} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(message: str, answer: str) -> str:
    mark = "" if sensible(message, answer) else "✗ "
    return mark + answer.replace("\n", " / ")


def main() -> None:
    """Ask, print the table, and put it into a model card where asked."""
    parser = argparse.ArgumentParser(description="Ask what newcomers type first.")
    parser.add_argument("--address", default="127.0.0.1:50051", help="of a frontend's gRPC")
    parser.add_argument("--card", type=Path, help="model card whose table is replaced")
    options = parser.parse_args()
    messages = [message for message, _ in FIRST_MESSAGES]
    text = table([ask(options.address, seed, messages) for seed in SEEDS])
    if options.card:
        put(options.card, "newcomers", text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
