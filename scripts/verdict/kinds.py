"""The ways in which the suite runs."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from scripts.verdict.beside import baton_up, end_session
from scripts.verdict.other_user import other_user
from scripts.verdict.slowing import Pauser, burners
from tests.support.clock import PAUSED_ENV
from tests.support.order import ORDER_ENV


@dataclass
class Around:
    """What a run of a kind has around it."""

    checkout: Path
    log: Path
    """Of the run; others lie next to it."""
    seed: int
    command: tuple[str, ...] = ()
    """Goes before the run's own command."""
    environment: dict[str, str] = field(default_factory=dict)
    on_start: Callable[[int], Callable[[], None]] = lambda _: lambda: None
    """Called with the run's process; what it returns is called at its end."""


@contextmanager
def plain(around: Around) -> Iterator[None]:
    """As it is."""
    yield


@contextmanager
def beside(around: Around) -> Iterator[None]:
    """With a `baton up` of the same user."""
    with baton_up(around.log.with_suffix(".up.log")):
        yield


@contextmanager
def slowed(around: Around) -> Iterator[None]:
    """On a machine that is busy, and stands still at random."""
    with tempfile.TemporaryDirectory() as name, burners(os.cpu_count() or 1):
        paused = Path(name) / "paused"
        around.environment[PAUSED_ENV] = str(paused)
        around.on_start = lambda pid: Pauser(pid, paused, around.seed).close
        yield


@contextmanager
def shuffled(around: Around) -> Iterator[None]:
    """In another order."""
    around.environment[ORDER_ENV] = str(around.seed)
    yield


@contextmanager
def other(around: Around) -> Iterator[None]:
    """As another user whose home is read-only, in another time zone and locale."""
    with other_user(around.checkout) as user:
        around.command = user.command
        around.environment |= user.environment
        yield


KINDS = {"plain": plain, "beside": beside, "slowed": slowed, "random": shuffled, "other": other}


def run(
    kinds: Sequence[str], command: Sequence[str], around: Around, base: Mapping[str, str]
) -> int:
    """Run a command in a clone in one way, or several at once; return its exit code.

    Args:
        kinds: of KINDS, all of them at once.
        command: run in the clone; its output goes into the log.
        around: changed by the kinds.
        base: the environment that the kinds add to.
    """
    with ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(KINDS[kind](around))
        out = stack.enter_context(around.log.open("wb"))
        process = subprocess.Popen(
            [*around.command, *command],
            cwd=around.checkout,
            env={**base, **around.environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        stack.callback(end_session, process)
        ended = around.on_start(process.pid)
        try:
            return process.wait()
        finally:
            ended()
