"""A hypothetical next version: the checkout with the changes that a next version may contain.

Every message between processes and every record in etcd has an additional field, which is set
whenever a message is sent. KV of the sim engine has another layout.
"""

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from bench.harness import ROOT
from bench.harness.releases import Release

FIELD = "of_a_later_release"
NUMBER = 1000
_PROTO_MESSAGE = re.compile(r"^message (\w+) \{(\})?", re.M)
_PATCH = "\nfrom baton.fill_later import patch\npatch(globals())\n"
_LAYOUT = 'engine="sim/1",'
_LATER_LAYOUT = 'engine="sim/later",'
_ENCODE = "    text = json_format.MessageToJson(record,"


def later(directory: Path) -> Release:
    """Write that version into an empty directory, where it stays."""
    # With bytecode, which stays valid: compiling everything would take seconds.
    ignored = shutil.ignore_patterns("v1", "*.egg-info")
    for name in ("baton", "services"):
        shutil.copytree(ROOT / name, directory / name, ignore=ignored)
    protos = directory / "protos"
    shutil.copytree(ROOT / "protos", protos)
    for path in protos.rglob("*.proto"):
        path.write_text(_PROTO_MESSAGE.sub(_with_field, path.read_text()))
    _generate(protos, directory)
    shutil.copy(Path(__file__).with_name("fill_later.py"), directory / "baton" / "fill_later.py")
    for path in (*directory.glob("baton/*/v1/*_pb2.py"), *directory.glob("baton/v1/*_pb2.py")):
        path.write_text(path.read_text() + _PATCH)
    factory = directory / "baton" / "engine" / "factory.py"
    _replace(factory, _LAYOUT, _LATER_LAYOUT)
    records = directory / "baton" / "cluster" / "keys.py"
    _replace(records, _ENCODE, f"    record.{FIELD} = 'later'\n{_ENCODE}")
    return Release("later", (directory,))


def _with_field(message: re.Match[str]) -> str:
    name, empty = message.groups()
    return f"message {name} {{\n  // Not known yet.\n  string {FIELD} = {NUMBER};\n{empty or ''}"


def _generate(protos: Path, directory: Path) -> None:
    """Generate the code of the protos, without types."""
    found = find_spec("google.rpc.status_pb2")
    assert found is not None and found.origin is not None
    google = Path(found.origin).parents[2]
    outs = (f"--python_out={directory}", f"--grpc_python_out={directory}")
    protoc = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(protos), "-I", str(google)]
    subprocess.run([*protoc, *outs, *map(str, protos.rglob("*.proto"))], check=True)
    for folder in ("baton/v1", "baton/internal/v1", "baton/internal"):
        (directory / folder / "__init__.py").touch()


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if text.count(old) != 1:
        raise AssertionError(f"{path} has {text.count(old)} times {old!r}, which is patched")
    path.write_text(text.replace(old, new))
