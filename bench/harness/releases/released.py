"""Versions from which upgrades are tested: wheels built from their commits."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.harness import ROOT
from bench.harness.releases import Release

COMMIT = "488c1e01c45c00ef66d212d1076238709669b732"
"""The commit to upgrade from and downgrade to."""
CONVERSATIONS_COMMIT = "ffb9a79adcc5cc41277b272a505e905ed5b8a70d"
"""The last commit with stored conversations whose newest schema is 0006."""
RENAMED = {
    "BATON_OPS_HOST": "BATON_TELEMETRY_METRICS_HOST",
    "BATON_OPS_PORT": "BATON_TELEMETRY_METRICS_PORT",
}
"""Names of COMMIT for settings that were renamed since."""
BUILT = ROOT / "build" / "releases"
_KNOWN = """
from baton.serve import PROCESSES
from baton.settings.sources import variables
print(*variables())
print(*PROCESSES)
"""
"""Prints the settings of a version, and its processes."""


class HistoryError(Exception):
    """The commit does not exist, does not build, or does not run here."""


def released(commit: str = COMMIT, renamed: Mapping[str, str] = RENAMED) -> Release:
    """Return the version of a commit; its wheel is built and unpacked once per checkout.

    Args:
        commit: all digits of it.
        renamed: its names for settings that were renamed since.

    Raises:
        HistoryError: the history lacks the commit, or its wheel cannot be built or imported.
    """
    name = commit[:8]
    target = BUILT / name
    if not target.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILT, prefix=f"{name}-") as directory:
            site = _build(commit, Path(directory))
            if not target.exists():  # otherwise another process was faster
                site.rename(target)
    release = Release(name, (target, target / "baton" / "_bundled"), renamed)
    known = _run(sys.executable, "-c", _KNOWN, environment=release.environment)
    variables, processes = (frozenset(line.split()) for line in known.splitlines())
    return replace(release, variables=variables, processes=processes)


def _build(commit: str, directory: Path) -> Path:
    """Return a folder with what the commit's wheel installs."""
    archive, source, dist, site = (directory / name for name in ("tar", "source", "dist", "site"))
    try:
        _run("git", "-C", ROOT, "archive", "--output", archive, "--format=tar", commit)
    except HistoryError as error:
        raise HistoryError(
            f"upgrades are tested from commit {commit[:8]}, which this checkout's history lacks: "
            f"`git fetch --unshallow` brings it ({error})"
        ) from error
    shutil.unpack_archive(archive, source, "tar")
    # The commit alone determines the version, not the surrounding checkout.
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", dist, source)
    (wheel,) = dist.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile")
    _run(*pip, "--no-deps", "--target", site, wheel)
    shutil.rmtree(source)
    return site


def _run(*command: str | Path, environment: Mapping[str, str] = {}) -> str:
    """Return the output of a program.

    Raises:
        HistoryError: it failed.
    """
    done = subprocess.run(
        [*map(str, command)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise HistoryError(f"{command[0]} failed: {' '.join(said)}")
    return done.stdout
