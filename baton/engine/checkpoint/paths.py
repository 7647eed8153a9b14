"""Names of files within a checkpoint, as a list from elsewhere may give them.

Independent of the file system: a name that passes stays below whichever directory it is joined to.
"""

MAX_NAME_BYTES = 255
"""Of one part: the limit of Linux file systems."""
MAX_DEPTH = 8
"""Parts of a path."""


def check_path(path: str) -> str:
    """Return a relative path with `/` between its parts, if it can be joined to a directory.

    Raises:
        ValueError: it is absolute, leads upwards, cannot be printed, or is too long. The text
            continues a sentence.
    """
    shown = path.encode("unicode_escape").decode()[:80]
    if not path or path.startswith("/") or "\\" in path:
        raise ValueError(f"{shown!r} is not a relative path with slashes")
    if not path.isprintable():
        raise ValueError(f"{shown!r} has characters that cannot be printed")
    parts = path.split("/")
    if len(parts) > MAX_DEPTH:
        raise ValueError(f"{shown!r} has more than {MAX_DEPTH} parts")
    for part in parts:
        if part in ("", ".", ".."):
            raise ValueError(f"{shown!r} does not name a file below the directory")
        if len(part.encode()) > MAX_NAME_BYTES:
            raise ValueError(f"{shown!r} has a part of more than {MAX_NAME_BYTES} bytes")
    return path


def check_paths(paths: list[str]) -> None:
    """Check that files of these paths can be in one directory together.

    Raises:
        ValueError: a path cannot be used, is there twice, or is also the folder of another one.
            The text continues a sentence.
    """
    seen: set[str] = set()
    folders: set[str] = set()
    for path in paths:
        check_path(path)
        if path in seen:
            raise ValueError(f"{path!r} is there twice")
        seen.add(path)
        parts = path.split("/")
        folders.update("/".join(parts[:count]) for count in range(1, len(parts)))
    if both := seen & folders:
        raise ValueError(f"{min(both)!r} is a file and a folder")
