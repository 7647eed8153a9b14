"""What a benchmark found that must not be: printed, written, and its exit code."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from bench.harness import cli


def shown(problems: Sequence[str], count: int = 20) -> list[Any]:
    """Print the first problems; return all."""
    for problem in problems[:count]:
        print(problem[:400])
    print(f"{len(problems)} differences" if problems else "no difference")
    return list(problems)


def concluded(
    options: argparse.Namespace, found: dict[str, Any], problems: Sequence[str]
) -> dict[str, Any]:
    """Print the problems and return the results with them.

    Raises:
        SystemExit: there are problems; the results are written, if `--json` asks for it.
    """
    found["problems"] = shown(problems)
    if problems:
        cli.write(options, found)
        sys.exit(1)
    return found
