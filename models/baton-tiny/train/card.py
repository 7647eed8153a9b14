"""The scores' part of the model card."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BEGIN, _END = "<!-- scores -->", "<!-- /scores -->"


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
        before, begin, rest = card.read_text().partition(_BEGIN)
        _, end, after = rest.partition(_END)
        if not begin or not end:
            raise ValueError(f"{card} has no {_BEGIN} and {_END}")
        card.write_text(f"{before}{_BEGIN}\n{text}{_END}{after}")
    return text
