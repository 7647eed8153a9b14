"""Launchers of processes of other versions."""

from collections.abc import Iterator, Mapping

import pytest

from baton.serve import PROCESSES
from bench.harness.releases import Release
from bench.harness.releases.later import later
from bench.harness.releases.released import HistoryError, released
from tests.support.processes.launcher import Launcher

SIM = {"BATON_ENGINE_KIND": "sim"}


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Release]:
    """`released` is the version before, `later` one that does not exist yet."""
    try:
        return {"released": released(), "later": later(tmp_path_factory.mktemp("later"))}
    except HistoryError as error:
        pytest.fail(str(error))


@pytest.fixture(scope="session")
def launchers(releases: Mapping[str, Release]) -> Iterator[Mapping[str, Launcher]]:
    """Launchers that fork processes of these versions."""
    launchers = {name: Launcher(one) for name, one in releases.items()}
    for name, launcher in launchers.items():
        # What they import takes seconds, in which the event loop of a cluster must not stand.
        known = [one for one in PROCESSES if releases[name].runs(one)]
        helps = [launcher.launch(["-m", "baton", "serve", one, "--help"], SIM) for one in known]
        assert [one.wait() for one in helps] == [0] * len(helps)
    yield launchers
    for launcher in launchers.values():
        launcher.close()
