"""The checkpoint that a local cluster serves."""

from pathlib import Path

from baton.cli.shared.errors import CommandError
from baton.host.bundled import root

DEMO_NAME = "baton-tiny"


def bundled_model() -> Path:
    """Return the directory of the demo's checkpoint."""
    return root() / "models" / DEMO_NAME


def require(path: Path, with_weights: bool) -> Path:
    """Check that a directory looks like a checkpoint; return its absolute path.

    Raises:
        CommandError: it does not; the message names what is missing.
    """
    if not path.is_dir():
        raise CommandError(
            f"Directory {str(path)!r} does not exist: set --model to a Hugging Face checkpoint."
        )
    missing = [name for name in ("config.json", "tokenizer.json") if not (path / name).is_file()]
    if with_weights and not any(path.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        raise CommandError(
            f"The checkpoint {str(path)!r} has no {', '.join(missing)}: download it again, or "
            "set --model to another directory."
        )
    return path.resolve()
