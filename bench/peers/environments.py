"""The peers, each installed in a virtual environment of its own under `.peers/`."""

import subprocess
import venv
from pathlib import Path

from bench.harness import ROOT

FOLDER = ROOT / ".peers"
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
_STEPS: dict[str, tuple[tuple[str, ...], ...]] = {
    # What ai-dynamo itself requires is more than its frontend and its mocker import.
    "dynamo": (
        ("--no-deps", "ai-dynamo==1.6.1"),
        (
            "ai-dynamo-runtime==1.6.1",
            *("typing_extensions", "uvloop", "pydantic", "prometheus_client"),
            *("packaging", "pyyaml", "transformers", "numpy", "msgspec"),
        ),
    ),
    "smg": (("smg==1.13.0",),),
}
"""By peer: the arguments of each `pip install`, in order."""


def binaries(peer: str) -> Path:
    """Return the folder of a peer's programs; installs it where it is not there yet.

    Raises:
        SystemExit: pip failed; says why.
    """
    folder = FOLDER / peer
    steps = _STEPS[peer]
    asked = "\n".join(" ".join(step) for step in steps)
    stamp = folder / "installed"
    if not stamp.exists() or stamp.read_text() != asked:
        print(f"installing {peer} into {folder.relative_to(ROOT)}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        for step in steps:
            # What pip says of packages that are left out on purpose shows only where it fails.
            pip = [str(folder / "bin" / "python"), *_PIP, *step]
            done = subprocess.run(pip, check=False, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{peer} could not be installed:\n{done.stderr[-2000:]}")
        stamp.write_text(asked)
    return folder / "bin"
