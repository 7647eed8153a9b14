"""Other versions of Baton than the checkout, for tests with two versions."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from baton.settings.names import ENV_PREFIX
from bench.harness import ROOT


@dataclass(frozen=True)
class Release:
    """A version of Baton that processes can run."""

    name: str
    paths: tuple[Path, ...]
    """Paths placed before the installed packages in `sys.path`."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Its names for settings that are renamed in the checkout: environment variables."""
    variables: frozenset[str] | None = None
    """Its settings, as environment variables; None: it has all of the checkout's."""
    processes: frozenset[str] | None = None
    """Names of its processes for `baton serve`; None: it has all of the checkout's."""

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which `python -m baton` is this version, in any directory."""
        paths = os.pathsep.join(map(str, self.paths))
        return {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}

    def settings(self, of_checkout: Mapping[str, str]) -> dict[str, str]:
        """Return settings of the checkout, as environment variables, by this version's names.

        Settings that it does not have are omitted: they would stop its processes.
        """
        named = {self.renamed.get(name, name): value for name, value in of_checkout.items()}
        return {name: value for name, value in named.items() if self.accepts(name)}

    def accepts(self, variable: str) -> bool:
        """Return whether a variable is a setting of this version, or no setting of Baton."""
        if self.variables is None or not variable.startswith(ENV_PREFIX):
            return True
        return variable in self.variables

    def runs(self, process: str) -> bool:
        """Return whether this version has a process."""
        return self.processes is None or process in self.processes


CHECKOUT = Release("checkout", (ROOT,))
