"""The parts of the model card that are measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_scores(scores: Mapping[str, Any], card: Path | None) -> str:
    """The scores in Markdown; with `card`, also put between its two marks.

    Raises:
        ValueError: the card has no such marks.
    """
    lines = [
        f"Each score is over {scores['questions']} questions, answered greedily.",
        "",
        "| distance in tokens between fact and question | right |",
        "|---|---|",
        *(f"| {distance} | {share:.1%} |" for distance, share in scores["retrieval"].items()),
        "",
        "| task | right to the letter |",
        "|---|---|",
        *(f"| {task} | {share:.1%} |" for task, share in scores["tasks"].items()),
        "",
        "What it answers:",
        "",
        *(
            f"- **{prompt}** → {' '.join(answer.split())}"
            for prompt, answer in scores["answers"].items()
        ),
        "",
    ]
    text = "\n".join(lines)
    if card is not None:
        put(card, "scores", text)
    return text


def put(card: Path, name: str, text: str) -> None:
    """Put a text between the two marks of its name.

    Raises:
        ValueError: the card has no such marks.
    """
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, begin, rest = card.read_text().partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{card} has no {first} and {last}")
    card.write_text(f"{before}{first}\n{text}{last}{after}")
