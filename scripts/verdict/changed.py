"""Run the test files that changed since a commit, each test many times."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from scripts.verdict.clone import ROOT
from tests.support.runs.order import ROUNDS_ENV

ALONE = "serial and not soak and not vllm"
NOTHING_COLLECTED = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.verdict.changed", description=__doc__)
    parser.add_argument(
        "base", metavar="COMMIT", help="run the test files that differ from this commit"
    )
    parser.add_argument("--rounds", type=int, default=50, help="runs per test (default: 50)")
    parser.add_argument("--workers", default="3", help="processes that run tests (default: 3)")
    parser.add_argument("--marks", required=True, help="marks of the tests to run in parallel")
    asked = parser.parse_args()
    files = changed(asked.base)
    if not files:
        print(f"no test file has changed since {asked.base}")
        return 0
    print(f"{asked.rounds} times: {' '.join(files)}", flush=True)
    beside = ["-n", asked.workers, "--dist", "loadgroup", "-m", asked.marks]
    codes = [_pytest(asked.rounds, *each, *files) for each in (beside, ["-m", ALONE])]
    return next((code for code in codes if code not in (0, NOTHING_COLLECTED)), 0)


def changed(base: str) -> list[str]:
    """Return the test files that differ from a commit, including untracked ones."""
    differ = ("diff", "--name-only", "--diff-filter=d", base, "--", "tests")
    found = _git(*differ) + _git("ls-files", "--others", "--exclude-standard", "--", "tests")
    return [name for name in dict.fromkeys(found) if Path(name).name.startswith("test_")]


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", "-C", ROOT, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout.split()


def _pytest(rounds: int, *arguments: str) -> int:
    command = [sys.executable, "-m", "pytest", "--maxfail", "20", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, ROUNDS_ENV: str(rounds)}).returncode


if __name__ == "__main__":
    sys.exit(main())
