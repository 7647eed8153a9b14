"""The hook that hatchling calls first: generate code, record the commit, compile.

`baton/version.py` reads the recorded commit where there is no checkout. A wheel built from an sdist
has the sdist's commit.

With $BATON_WHEEL_NATIVE set, the wheel also contains the compiled libraries, for every CPU of this
architecture, and fits only this platform, Python and torch. Otherwise it fits all platforms and
contains nothing compiled.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
NOTE = "baton/_commit"
NATIVE_ENV = "BATON_WHEEL_NATIVE"
NATIVE = "baton/_native"
"""The folder in which `baton/compiled/files.py` looks for the libraries."""


class BuildHook(BuildHookInterface[Any]):
    """Used for wheels, including editable installs, and for sdists."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
        if self.target_name == "wheel":
            from protoc import generate

            generate()
        self._directory = tempfile.TemporaryDirectory(prefix="baton-commit-")
        if version != "editable":
            self._note_commit(build_data)
        if self.target_name == "wheel" and version != "editable" and os.environ.get(NATIVE_ENV):
            self._compile(build_data)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._directory.cleanup()

    def _note_commit(self, build_data: dict[str, Any]) -> None:
        from baton.version import commit

        if not commit():
            self.app.display_warning("no commit is known: the version will not tell it")
            return
        note = Path(self._directory.name) / "note"
        note.write_text(commit() + "\n")
        build_data["force_include"][str(note)] = NOTE

    def _compile(self, build_data: dict[str, Any]) -> None:
        from baton.engine.native.build import library
        from baton.engine.native.variants import compilable
        from services.router.policy.compiled.build import library as scores
        from services.router.prefix_index.blocks.build import library as table

        for each in (*map(library, compilable()), table(), scores()):
            built = each.build()
            build_data["force_include"][str(built)] = f"{NATIVE}/{built.name}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
