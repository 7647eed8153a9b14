"""What hatchling calls before it collects files: generate code, and note the commit.

`baton/version.py` reads the note where there is no checkout. A wheel that is made from an sdist has
the sdist's.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
NOTE = "baton/_commit"


class BuildHook(BuildHookInterface[Any]):
    """Used for wheels, editable installs among them, and sdists."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
        if self.target_name == "wheel":
            from protoc import generate

            generate()
        self._directory = tempfile.TemporaryDirectory(prefix="baton-commit-")
        if version != "editable":
            self._note_commit(build_data)

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
