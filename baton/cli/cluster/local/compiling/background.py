"""Compile in the background of a cluster, for its next start."""

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
    """Why a part is not compiled."""

    reason: str
    """Reason to report later, while the cluster runs."""
    sentence: str
    """Reason to report now, with what to do."""


def compile_router(reporter: Reporter) -> None:
    """Start compiling missing router libraries, and report it. Results do not depend on them."""
    missing = [library for library in of_router() if library.find() is None]
    if missing:
        absent = begin(ROUTER, missing)
        reporter.info(f"The router uses plain Python, which is slower: {absent.sentence}")


def begin(part: str, missing: Sequence[Library]) -> Absent:
    """Start compiling a part in the background, unless a builder already does.

    Args:
        part: the builder's name for it.
        missing: its missing libraries; at least one.
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
        # In a separate process group: it continues if the cluster ends first, and Ctrl-C does not
        # reach it.
        builder = subprocess.Popen(
            [sys.executable, "-P", "-m", "baton.cli.cluster.local.compiling.builder", part],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
        )
    Thread(target=builder.wait, daemon=True).start()  # no zombie remains
