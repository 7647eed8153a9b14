"""Lists of a model's files: a completion record, or SHA256SUMS as `sha256sum` writes it."""

import re

from baton.engine.checkpoint.paths import check_paths
from baton.engine.checkpoint.record import MAX_FILES
from baton.models.errors import PullError

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def parse_sums(data: bytes, name: str) -> dict[str, str]:
    """Return the SHA-256 of each file, in hexadecimal, by its path.

    Args:
        data: lines of a digest, a space, a space or `*`, and a path.
        name: of the source, for errors.

    Raises:
        PullError: a line is not of that form, a path cannot be used, or there are too many.
    """
    found: dict[str, str] = {}
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) > MAX_FILES:
        raise PullError(f"{SUMS} of {name} has more than {MAX_FILES} lines.")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise PullError(
                f"Line {number} of {SUMS} of {name} is not a SHA-256, two spaces and a path, as "
                "`sha256sum` writes them."
            )
        path = match[2].removeprefix("./")
        if path in found:
            raise PullError(f"{SUMS} of {name} lists {path!r} twice.")
        found[path] = match[1].lower()
    if not found:
        raise PullError(f"{SUMS} of {name} lists no file.")
    try:
        check_paths(list(found))
    except ValueError as error:
        raise PullError(f"{SUMS} of {name} has a path that cannot be used: {error}.") from error
    return found
