"""Tokens for sources: read from a file or the environment, and shown nowhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from baton.models.errors import PullError

MAX_TOKEN_BYTES = 16 * 1024


class AccessToken:
    """A bearer token. Its text is only in the header of the requests that need it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "AccessToken(…)"

    def header(self) -> str:
        """Return the value of an Authorization header."""
        return f"Bearer {self._value}"


@dataclass(frozen=True, slots=True)
class SourceSecrets:
    """Files of secrets for one download."""

    token_file: Path | None = None
    """Has a token, or the download fails."""
    directory: Path | None = None
    """May have the files `token` and `credentials`, as a mounted Secret."""

    def token(self) -> AccessToken | None:
        """Return the token in a file; None: there is none.

        Raises:
            PullError: the file cannot be read, or has no token.
        """
        if self.token_file is not None:
            return read_token_file(self.token_file)
        path = self._existing("token")
        return read_token_file(path) if path is not None else None

    def credentials(self) -> Path | None:
        """Return the file with keys for S3, in AWS's format; None: there is none."""
        return self._existing("credentials")

    def _existing(self, name: str) -> Path | None:
        path = self.directory / name if self.directory is not None else None
        return path if path is not None and path.is_file() else None


def read_token_file(path: Path) -> AccessToken:
    """Return the token in a file; space around it is ignored.

    Raises:
        PullError: the file cannot be read, or has no token.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TOKEN_BYTES)
    except OSError as error:
        raise PullError(f"The token file {path} cannot be read: {error.strerror}.") from error
    return _token(data.decode("utf-8", "replace"), f"The token file {path}")


def hub_token(
    secrets: SourceSecrets, environment: Mapping[str, str], stored: bool
) -> AccessToken | None:
    """Return the token for Hugging Face's hub; None: there is none, and public models need none.

    In this order: `secrets`, HF_TOKEN, the file that HF_TOKEN_PATH names, and what `hf auth login`
    stored.

    Args:
        secrets: given for this download.
        environment: the variables.
        stored: whether a stored token may be used: it is for the public hub, not for a mirror.

    Raises:
        PullError: a file that was named cannot be read, or has no token.
    """
    if (token := secrets.token()) is not None:
        return token
    if value := environment.get("HF_TOKEN", "").strip():
        return _token(value, "HF_TOKEN")
    if named := environment.get("HF_TOKEN_PATH", ""):
        return read_token_file(Path(named))
    cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
    home = environment.get("HF_HOME") or f"{cache}/huggingface"
    path = Path(home).expanduser() / "token"
    return read_token_file(path) if stored and path.is_file() else None


def _token(text: str, source: str) -> AccessToken:
    value = text.strip()
    if not value or not value.isascii() or not value.isprintable() or " " in value:
        raise PullError(f"{source} has no token: it must be one word of ASCII characters.")
    return AccessToken(value)
