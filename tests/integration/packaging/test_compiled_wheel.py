"""A wheel for one platform brings what is compiled, and needs no compiler where it is installed."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from baton.engine.native.variants import compilable
from tests.support.doubles.compiler import make_compiler

ROOT = Path(__file__).parents[3]
SERVE = """
import os, sys
from baton import compiled
from baton.engine.native.build import library
from baton.engine.native.variants import compilable
assert compiled.__file__.startswith(sys.argv[1]), compiled.__file__
print(*(library(variant).find() for variant in compilable()), sep="\\n")
"""

pytestmark = [
    pytest.mark.xdist_group("wheel"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(not compilable(), reason="there is no variant for this architecture"),
]


def test_every_variant_is_in_the_wheel_and_found_there(tmp_path: Path) -> None:
    compiler = make_compiler(tmp_path)
    native = {"BATON_NATIVE_DIRECTORY": str(tmp_path / "native"), "BATON_WHEEL_NATIVE": "1"}
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    done = subprocess.run(
        [*build, str(ROOT)],
        env={**os.environ, **native, "CXX": compiler, "CC": compiler},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = tmp_path.glob("*.whl")
    assert f"-cp3{sys.version_info.minor}-" in wheel.name
    assert not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [Path(name).name for name in archive.namelist() if name.startswith("baton/_native")]
        archive.extractall(tmp_path / "site")
    kinds = sorted(name.rpartition("_")[0] for name in names)
    machine = os.uname().machine
    assert kinds == sorted(
        [
            f"baton_blocks_{machine}",
            f"baton_scores_{machine}",
            *(f"baton_native_{each.name}" for each in compilable()),
        ]
    )

    found = subprocess.run(
        [sys.executable, "-c", SERVE, str(tmp_path / "site")],
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PYTHONPATH": str(tmp_path / "site"),
            "BATON_NATIVE_DIRECTORY": str(tmp_path / "empty"),
            "PATH": str(tmp_path),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.split()
    assert [Path(path).parent for path in found] == [tmp_path / "site/baton/_native"] * len(found)
    assert len(found) == len(compilable())
