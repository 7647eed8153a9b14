"""Generate `baton/v1` from `protos/`: messages, gRPC stubs and their type stubs.

Runs as a script (`python scripts/protoc.py`) and as the wheel's build hook.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent


def generate() -> None:
    """Replace `baton/v1` by freshly generated code.

    Raises:
        subprocess.CalledProcessError: protoc refused a file; its message is on stderr.
    """
    out = ROOT / "baton" / "v1"
    shutil.rmtree(out, ignore_errors=True)
    sources = sorted((ROOT / "protos").rglob("*.proto"))
    includes = ["-I", str(ROOT / "protos"), "-I", sysconfig.get_path("purelib")]
    scripts = Path(sysconfig.get_path("scripts"))
    plugins = [
        f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
    ]
    outs = [f"--{kind}_out={ROOT}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", *includes, *plugins, *outs, *map(str, sources)],
        check=True,
    )
    # protoc makes no package file.
    (out / "__init__.py").write_text('"""Generated from protos/baton/v1 by scripts/protoc.py."""\n')


class ProtocHook(BuildHookInterface[Any]):
    """Hatchling calls this before it collects files."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        generate()


if __name__ == "__main__":
    generate()
