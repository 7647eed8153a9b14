"""What a release consists of, built once."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist, and the wheel that was built from it."""
    target = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return target


@pytest.fixture(scope="session")
def publish_protos() -> Callable[[Path], Path]:
    """Publish the protos into a directory, as `make dist` does."""

    def publish(target: Path) -> Path:
        script = ROOT / "scripts" / "publish_protos.py"
        subprocess.run([sys.executable, str(script), str(target)], check=True, timeout=60)
        return target

    return publish


@pytest.fixture(scope="session")
def published(
    publish_protos: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return publish_protos(tmp_path_factory.mktemp("published"))
