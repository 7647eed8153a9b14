"""Check when and where figures in the documents were measured: `python -m scripts.docs.figures`.

A section that names a benchmark, as `python -m bench.…` or `make bench-…`, ends with a line

    Measured: `COMMIT`, PROCESSOR.

COMMIT is the measured commit or a later one, in seven digits or more; PROCESSOR is the first line
that a benchmark prints. The command lists the sections whose commit is more than OLD commits
behind.
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
OLD = 100
_NO_FIGURES = ("gpu.md", "folders.md")
_HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)
_BENCHMARK = re.compile(r"python -m (bench(?:\.\w+)+)|`make (bench-[\w-]+)")
_MEASURED = re.compile(r"^Measured: `([0-9a-f]{7,40})`, (\S.*)\.$", re.MULTILINE)


@dataclass(frozen=True)
class Figures:
    """A section of a document with figures of a benchmark."""

    page: str
    heading: str
    benchmarks: tuple[str, ...]
    """Modules and make targets that the section names."""
    commits: tuple[str, ...]
    """The commits that the section names as measured."""

    @property
    def place(self) -> str:
        """The section's file and heading."""
        return f"{self.page}, {self.heading!r}"


def sections(page: Path) -> Iterator[Figures]:
    """Yield the sections of a document that name a benchmark."""
    text = page.read_text()
    headings = list(_HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    for heading, end in zip(headings, ends, strict=True):
        body = text[heading.end() : end]
        named = tuple(dict.fromkeys(a or b for a, b in _BENCHMARK.findall(body)))
        if named:
            commits = tuple(commit for commit, _ in _MEASURED.findall(body))
            yield Figures(page.name, heading.group(1), named, commits)


def all_figures() -> list[Figures]:
    """Return the sections with figures, of all documents.

    Except: ADRs, whose figures are as of their date; gpu.md, which lists what was not run; and
    folders.md.
    """
    pages = sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in _NO_FIGURES)
    return [one for page in pages for one in sections(page)]


def problems() -> list[str]:
    """Return the problems of sections with figures, a sentence each."""
    found = []
    for one in all_figures():
        if not one.commits:
            found.append(f"docs/{one.place} has no line `Measured: COMMIT, PROCESSOR.`")
        for name in one.benchmarks:
            path = ROOT / Path(*name.split("."))
            if name.startswith("bench.") and not (
                path.with_suffix(".py").exists() or path.is_dir()
            ):
                found.append(f"docs/{one.place} names {name}, which does not exist")
    return found


def age(commit: str) -> int | None:
    """Return the number of commits since a commit; None: this checkout does not have it."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "rev-list", "--count", f"{commit}..HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return int(done.stdout) if done.returncode == 0 else None


def main() -> None:
    """Print the sections whose figures are old."""
    for one in all_figures():
        for commit in one.commits:
            behind = age(commit)
            if behind is None or behind > OLD:
                known = "not in this checkout" if behind is None else f"{behind} commits old"
                print(f"docs/{one.place}: {', '.join(one.benchmarks)}: {commit}, {known}")


if __name__ == "__main__":
    main()
