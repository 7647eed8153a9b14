"""Baton in other versions than the checkout's, for what runs two of them at once."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness import ROOT


@dataclass(frozen=True)
class Release:
    """A version of Baton that processes can run."""

    name: str
    paths: tuple[Path, ...]
    """What stands before the installed packages in `sys.path`."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """What it calls settings that have another name in the checkout: environment variables."""

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which `python -m baton` is this version, wherever it runs."""
        paths = os.pathsep.join(map(str, self.paths))
        return {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}

    def settings(self, of_checkout: Mapping[str, str]) -> dict[str, str]:
        """Return settings of the checkout's, in environment variables, by this version's names."""
        return {self.renamed.get(name, name): value for name, value in of_checkout.items()}


CHECKOUT = Release("checkout", (ROOT,))
