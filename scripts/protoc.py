"""Generate `baton/v1` and `baton/internal` from `protos/`: messages, stubs, and their types.

Runs as a script (`python scripts/protoc.py`) and in the build hook, whose compilers are in an
environment of their own: everything is found through importable packages.
"""

import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path

from google.rpc import status_pb2

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PACKAGES = ("v1", "internal")
"""The packages under `baton/` that are generated as a whole."""
NOTE = "Generated from protos/ by scripts/protoc.py."


def generate() -> None:
    """Generate `baton/v1` and `baton/internal` from `protos/`.

    A file is replaced atomically and only if it differs. Processes that import the packages at the
    same time, such as tests during the build of a wheel, never miss a file.

    Raises:
        subprocess.CalledProcessError: protoc failed; its message is on stderr, and the previous
            code is unchanged.
    """
    target = ROOT / "baton"
    sources = sorted(PROTOS.rglob("*.proto"))
    includes = ["-I", str(PROTOS), "-I", str(google_protos())]
    plugins = [
        f"--plugin={name}={_executable('mypy-protobuf', name)}"
        for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
    ]
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build, prefix="protoc-") as out:
        outs = [f"--{kind}_out={out}" for kind in ("python", "grpc_python")]
        outs += [f"--{kind}_out=quiet:{out}" for kind in ("mypy", "mypy_grpc")]
        protoc = [sys.executable, "-m", "grpc_tools.protoc"]
        subprocess.run([*protoc, *includes, *plugins, *outs, *map(str, sources)], check=True)
        made = Path(out) / "baton"
        for folder in (path for path in made.rglob("*") if path.is_dir()):
            # protoc creates no __init__.py.
            (folder / "__init__.py").write_text(f'"""{NOTE}"""\n')
        for package in PACKAGES:
            _mirror(made / package, target / package)


def _mirror(made: Path, target: Path) -> None:
    """Make the files of `target` the same as those of `made`."""
    wanted = {path.relative_to(made) for path in made.rglob("*") if path.is_file()}
    for relative in wanted:
        source, file = made / relative, target / relative
        if not file.is_file() or file.read_bytes() != source.read_bytes():
            file.parent.mkdir(parents=True, exist_ok=True)
            source.replace(file)
    for file in target.rglob("*"):
        cached = "__pycache__" in file.parts
        if file.is_file() and not cached and file.relative_to(target) not in wanted:
            file.unlink()


def google_protos() -> Path:
    """The directory of `google/rpc/*.proto`, in googleapis-common-protos."""
    return Path(status_pb2.__file__).parents[2]


def _executable(package: str, name: str) -> Path:
    """A program that an importable distribution installed."""
    for file in distribution(package).files or ():
        if file.name == name:
            return Path(str(file.locate())).resolve()
    raise FileNotFoundError(f"{package} has no program {name}: reinstall it")


if __name__ == "__main__":
    generate()
