"""The conditions under which the suite runs."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from scripts.verdict import session
from scripts.verdict.beside import baton_up
from scripts.verdict.other_user import other_user
from scripts.verdict.slowing import Pauser, burners
from tests.support.clock import PAUSED_ENV
from tests.support.runs.order import ORDER_ENV


@dataclass
class Around:
    """The surroundings of a run: what its kinds add."""

    checkout: Path
    log: Path
    """The run's log; other files of the run are next to it."""
    seed: int
    command: tuple[str, ...] = ()
    """Prefix of the run's command."""
    environment: dict[str, str] = field(default_factory=dict)
    on_start: Callable[[int], Callable[[], None]] = lambda _: lambda: None
    """Called with the run's process; the returned function is called at its end."""


@contextmanager
def plain(around: Around) -> Iterator[None]:
    """Run without changes."""
    yield


@contextmanager
def beside(around: Around) -> Iterator[None]:
    """Run next to a `baton up` of the same user."""
    with baton_up(around.log.with_suffix(".up.log")):
        yield


@contextmanager
def slowed(around: Around) -> Iterator[None]:
    """Run on a busy machine that stalls at random."""
    with tempfile.TemporaryDirectory() as name, burners(os.cpu_count() or 1):
        paused = Path(name) / "paused"
        around.environment[PAUSED_ENV] = str(paused)
        around.on_start = lambda pid: Pauser(pid, paused, around.seed).close
        yield


@contextmanager
def shuffled(around: Around) -> Iterator[None]:
    """Run in another order."""
    around.environment[ORDER_ENV] = str(around.seed)
    yield


@contextmanager
def other(around: Around) -> Iterator[None]:
    """Run as another user with a read-only home, in another time zone and locale."""
    with other_user(around.checkout) as user:
        around.command = user.command
        around.environment |= user.environment
        yield


KINDS = {"plain": plain, "beside": beside, "slowed": slowed, "random": shuffled, "other": other}


def run(
    kinds: Sequence[str], command: Sequence[str], around: Around, base: Mapping[str, str]
) -> int:
    """Run a command in a clone under some conditions; return its exit code.

    Args:
        kinds: members of KINDS, all at once.
        command: run in the clone; its output goes to the log.
        around: changed by the kinds.
        base: the environment that the kinds extend.
    """
    with ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(KINDS[kind](around))
        out = stack.enter_context(around.log.open("wb"))
        process = session.start(
            [*around.command, *command], around.checkout, out, {**base, **around.environment}
        )
        stack.callback(session.end, process)
        ended = around.on_start(process.pid)
        try:
            return process.wait()
        finally:
            ended()
