"""Decisions have numbers of their own, and their table has all of them."""

import re
from pathlib import Path

ADR = Path(__file__).parents[3] / "docs" / "adr"


def test_the_table_has_each_decision_once_in_order() -> None:
    files = sorted(path.name for path in ADR.glob("0*.md"))
    rows = re.findall(r"^\| \[(\d+)\]\((\S+)\) \|", (ADR / "README.md").read_text(), re.M)
    assert [name for _, name in rows] == files
    assert [int(number) for number, _ in rows] == sorted({int(name[:4]) for name in files})


def test_each_decision_has_the_number_of_its_file() -> None:
    wrong = [
        path.name
        for path in ADR.glob("0*.md")
        if not path.read_text().startswith(f"# {int(path.name[:4])}. ")
    ]
    assert not wrong
