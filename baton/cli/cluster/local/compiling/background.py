"""Begin to compile behind a cluster, which does without until its next start."""

import subprocess
import sys
from collections.abc import Sequence
from threading import Thread
from typing import NamedTuple

from baton.cli.cluster.local.compiling.parts import ROUTER, of_router
from baton.cli.cluster.local.output.report import Reporter
from baton.compiled.files import directory
from baton.compiled.library import CompileError, Library


class Absent(NamedTuple):
    """Why something is not compiled."""

    reason: str
    """To be told later, while the cluster runs."""
    sentence: str
    """The same for now, with what to do."""


def compile_router(reporter: Reporter) -> None:
    """Begin to compile what routers lack, and say so. Its results do not depend on it."""
    missing = [library for library in of_router() if library.find() is None]
    if missing:
        absent = begin(ROUTER, missing)
        reporter.info(f"The router uses plain Python, which is slower: {absent.sentence}")


def begin(part: str, missing: Sequence[Library]) -> Absent:
    """Begin to compile a part in the background, unless a builder does already.

    Args:
        part: the builder's name for it.
        missing: its libraries that are not there; one at least.
    """
    try:
        for library in missing:
            library.find_compiler()
    except CompileError as error:
        package = missing[0].language.package
        return Absent(
            str(error), f"{error}. Install one, for example {package}, and start the cluster again."
        )
    logs = [str(library.log) for library in missing if library.log.exists()]
    failed = f"; an earlier compilation failed: {', '.join(logs)}" if logs else ""
    try:
        if not any(library.is_being_built() for library in missing):
            _spawn(part)
    except OSError as error:
        reason = f"{directory()} cannot be written ({error.strerror})"
        return Absent(reason, f"{reason}. Set BATON_NATIVE_DIRECTORY to a writable directory.")
    return Absent(
        f"compilation was in progress when the cluster started{failed}",
        f"the missing parts compile in the background for the next start{failed}.",
    )


def _spawn(part: str) -> None:
    directory().mkdir(parents=True, exist_ok=True)
    with (directory() / f"builder-{part}.log").open("wb") as log:
        # In no group of ours: it goes on where the cluster ends first, and Ctrl-C is not for it.
        builder = subprocess.Popen(
            [sys.executable, "-P", "-m", "baton.cli.cluster.local.compiling.builder", part],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
        )
    Thread(target=builder.wait, daemon=True).start()  # no zombie is left of it
