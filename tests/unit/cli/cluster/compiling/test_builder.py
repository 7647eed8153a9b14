"""The builder that a cluster leaves behind it compiles everything, or says why not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from baton.cli.cluster.local.compiling.background import _spawn
from baton.cli.cluster.local.compiling.parts import OPERATORS, ROUTER, of_router
from baton.compiled.files import DIRECTORY_ENV
from baton.engine.native import build as native_build
from baton.engine.native.variants import runnable
from tests.support.clock import DEADLINE_SECONDS
from tests.support.wait import eventually_blocking

pytestmark = pytest.mark.skipif(not runnable(), reason="there is no variant for this CPU")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "compile.sh"
    script.write_text('nice > "$0.nice"; for made; do :; done; echo library > "$made"')
    for variable in ("CC", "CXX"):
        monkeypatch.setenv(variable, f"sh {script}")
    monkeypatch.setenv(DIRECTORY_ENV, str(tmp_path / "native"))
    return tmp_path / "native"


def test_it_builds_a_part_behind_everything_else(directory: Path) -> None:
    _spawn(ROUTER)
    try:
        eventually_blocking(lambda: None not in [one.find() for one in of_router()])
    except TimeoutError:
        pytest.fail((directory / "builder-router.log").read_text())
    kinds = sorted(path.name.split("_")[1] for path in directory.glob("*.so"))
    assert kinds == ["blocks", "scores"]
    assert (directory.parent / "compile.sh.nice").read_text().strip() == "19"


def run_builder(part: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "baton.cli.cluster.local.compiling.builder", part],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        env=os.environ,
    )


def test_what_fails_stands_in_its_output_and_in_the_compilers_log(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "sh -c 'echo out of memory; exit 1'")
    ended = run_builder(OPERATORS)
    assert ended.returncode == 1
    assert f"cannot build baton_native_{runnable()[0].name}: sh failed" in ended.stderr
    assert "compilation failed: see " in native_build.why_absent()
    assert "out of memory" in native_build.best_library().log.read_text()


def test_what_fails_keeps_nothing_else_from_being_built(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "compile.sh"
    compiler.write_text(f'case "$*" in *table.c*) exit 1;; esac; {compiler.read_text()}')
    ended = run_builder(ROUTER)
    assert ended.returncode == 1
    assert "cannot build baton_blocks_" in ended.stderr
    assert [Path(line) for line in ended.stdout.split()] == [of_router()[1].find()]
