"""Where Baton's manifests for Kustomize are."""

from pathlib import Path

from baton.cli.shared.errors import CommandError

POOL = "pool"
"""The directory of a model's workers, in them."""


def find_manifests(directory: Path, manifests: Path | None) -> Path:
    """Return Baton's directory `k8s`.

    Args:
        directory: of an overlay that will use it.
        manifests: where it is; None: the nearest above `directory`.

    Raises:
        CommandError: there is none.
    """
    places = [manifests] if manifests is not None else list(directory.absolute().parents)
    for place in places:
        if (place / POOL / "kustomization.yaml").is_file():
            return place
    where = str(manifests) if manifests is not None else f"No directory above {directory}"
    raise CommandError(f"{where} has no {POOL}/kustomization.yaml: set --manifests to Baton's k8s.")
