"""The results of the runs, stored so that a later start finds them."""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from scripts.verdict.clone import ROOT

DIRECTORY = ROOT / "build" / "verdict"
STATE = DIRECTORY / "state.json"
_ENDED = re.compile(r"^(?:\d+ \w+, )*\d+ (?:passed|failed|error).* in ([\d.]+)s", re.M)
_COUNT = re.compile(r"(\d+) (passed|failed|error|skipped)")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.M)


@dataclass(frozen=True)
class Run:
    """One run of the suite."""

    commit: str
    processor: str
    kind: str
    number: int
    green: bool
    seconds: float
    """Duration of the whole command, by the wall clock."""
    test_seconds: float
    """The part that pytest reports."""
    passed: int
    failures: tuple[str, ...]
    load: float
    """Load of the machine over the last five minutes, at the end: other users may have used it."""
    log: str


def load() -> list[Run]:
    """Return all recorded runs, of every commit."""
    if not STATE.exists():
        return []
    return [
        Run(**{**row, "failures": tuple(row["failures"])}) for row in json.loads(STATE.read_text())
    ]


def save(runs: Iterable[Run]) -> None:
    """Replace the record."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    draft = STATE.with_suffix(".new")
    draft.write_text(json.dumps([asdict(run) for run in runs], indent=1))
    draft.rename(STATE)


def read_log(text: str) -> tuple[int, float, tuple[str, ...]]:
    """Return the number of passed tests, the seconds that pytest reports, and the failures."""
    ends = list(_ENDED.finditer(text))
    counts = [count for end in ends for count in _COUNT.findall(end.group())]
    passed = sum(int(count) for count, what in counts if what == "passed")
    failures = tuple(dict.fromkeys(_FAILED.findall(text)))
    return passed, sum(float(end.group(1)) for end in ends), failures


def table(runs: Iterable[Run]) -> str:
    """Return runs as a table, and their failures below it."""
    lines = ["run        commit    verdict  make test    pytest   passed  load"]
    failed = []
    for run in runs:
        verdict = "green" if run.green else "RED"
        name, took, tested = f"{run.kind} {run.number}", _time(run.seconds), _time(run.test_seconds)
        lines.append(
            f"{name:<10} {run.commit[:8]}  {verdict:<7} {took:>10}{tested:>10}"
            f" {run.passed:>8} {run.load:>5.1f}"
        )
        if not run.green:
            what = run.failures or (f"no test failed; see {run.log}",)
            failed += [f"{name}: {each}" for each in what]
    return "\n".join([*lines, *failed])


def _time(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
