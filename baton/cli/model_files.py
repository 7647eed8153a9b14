"""The checkpoint that a local cluster serves."""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import baton
from baton.cli.errors import EXIT_FAILED, CommandError

DEMO_NAME = "baton-tiny"
RANDOM_NAME = "baton-random"
_WRITE = """
import sys
from pathlib import Path
from baton.engine.random_checkpoint import write_random_checkpoint
write_random_checkpoint(Path(sys.argv[1]))
"""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A checkpoint's directory."""

    path: Path
    random: bool
    """Its weights were drawn, not trained: what it writes is noise."""


def find(wanted: Path | None, with_weights: bool) -> ModelFiles:
    """The checkpoint to serve: the one asked for, else the demo's, else a random one.

    Args:
        wanted: a directory, or None.
        with_weights: whether the engine reads the weights.

    Raises:
        CommandError: the directory or a file in it is missing.
    """
    if wanted is not None:
        return ModelFiles(require(wanted, with_weights), random=False)
    demo = Path(baton.__file__).resolve().parents[1] / "models" / DEMO_NAME
    if demo.is_dir():
        return ModelFiles(require(demo, with_weights), random=False)
    return ModelFiles(_random_checkpoint(), random=True)


def require(path: Path, with_weights: bool) -> Path:
    """Check that a directory looks like a checkpoint; its absolute path.

    Raises:
        CommandError: it does not; the text names what is missing.
    """
    if not path.is_dir():
        raise CommandError(
            f"There is no directory {str(path)!r}: --model takes a Hugging Face checkpoint's."
        )
    missing = [name for name in ("config.json", "tokenizer.json") if not (path / name).is_file()]
    if with_weights and not any(path.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        raise CommandError(
            f"The checkpoint {str(path)!r} lacks {' and '.join(missing)}: download it again, or "
            "give another directory with --model."
        )
    return path.resolve()


def _random_checkpoint() -> Path:
    """Write the stand-in once; where it is."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "baton"
    target = cache / baton.__version__ / RANDOM_NAME
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=target.parent) as draft:
        # In a process of its own: this one stays free of torch.
        made = Path(draft) / RANDOM_NAME
        done = subprocess.run(
            [sys.executable, "-c", _WRITE, str(made)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise CommandError(
                f"The random checkpoint cannot be written to {target}: {done.stderr.strip()}",
                EXIT_FAILED,
            )
        try:
            made.rename(target)
        except OSError:  # another command was faster, with the same bytes
            if not target.is_dir():
                raise
            shutil.rmtree(made)
    return target
