"""Keys of providers, read from where their references say. No key is ever logged or stored."""

import os
import re
import stat
from pathlib import Path

_MAX_BYTES = 4096
_KEY = re.compile(r"[!-~]{8,4096}")
_FILE, _ENV = "file:", "env:"


class KeyUnreadableError(Exception):
    """The key cannot be used; the message names its reference, never its content."""


class ProviderKey:
    """One key of a provider, read again when its file changes.

    Args:
        reference: `file:/PATH` or `env:NAME`; empty: requests have no key.
    """

    def __init__(self, reference: str) -> None:
        self.reference = reference
        self._read: tuple[tuple[int, int, int], str] | None = None
        """Inode, size and time of the file that was read, and its key."""

    def value(self) -> str:
        """Return the key; empty: there is none.

        Raises:
            KeyUnreadableError: it is missing, readable by all users, or not a key.
        """
        if not self.reference:
            return ""
        if self.reference.startswith(_ENV):
            return self._checked(os.environ.get(self.reference.removeprefix(_ENV), ""))
        path = Path(self.reference.removeprefix(_FILE))
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise KeyUnreadableError(f"{self.reference}: is not a file")
            if found.st_mode & (stat.S_IROTH | stat.S_IWOTH):
                raise KeyUnreadableError(
                    f"{self.reference}: all users can read or write the file; use mode 0600"
                )
            version = (found.st_ino, found.st_size, found.st_mtime_ns)
            if self._read is None or self._read[0] != version:
                with path.open(encoding="ascii", errors="replace") as file:
                    self._read = version, self._checked(file.read(_MAX_BYTES + 1).strip())
        except OSError as error:
            raise KeyUnreadableError(f"{self.reference}: {error.strerror}") from None
        return self._read[1]

    def _checked(self, text: str) -> str:
        if not text:
            raise KeyUnreadableError(f"{self.reference}: is empty or not set")
        if not _KEY.fullmatch(text):
            raise KeyUnreadableError(
                f"{self.reference}: is not a key: one line of 8 to {_MAX_BYTES} printable "
                "characters without spaces"
            )
        return text
