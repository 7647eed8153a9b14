"""The peers, each installed in its own virtual environment under `.peers/`."""

import subprocess
import venv
from pathlib import Path

from bench.harness import ROOT

FOLDER = ROOT / ".peers"
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
_STEPS: dict[str, tuple[tuple[str, ...], ...]] = {
    # ai-dynamo requires more than its frontend and its mocker import.
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
"""Per peer: the arguments of each `pip install`, in order."""


def binaries(peer: str) -> Path:
    """Return the folder of a peer's programs, after installing it if necessary.

    Raises:
        SystemExit: pip failed; the text is its reason.
    """
    folder = FOLDER / peer
    steps = _STEPS[peer]
    asked = "\n".join(" ".join(step) for step in steps)
    stamp = folder / "installed"
    if not stamp.exists() or stamp.read_text() != asked:
        print(f"installing {peer} into {folder.relative_to(ROOT)}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        for step in steps:
            # pip's messages about packages that are omitted on purpose appear only if it fails.
            pip = [str(folder / "bin" / "python"), *_PIP, *step]
            done = subprocess.run(pip, check=False, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{peer} could not be installed:\n{done.stderr[-2000:]}")
        stamp.write_text(asked)
    return folder / "bin"
