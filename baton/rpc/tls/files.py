"""The files of a certificate, its key and the trusted authorities, as named in settings."""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from baton.settings import StartupError

_WEAK = ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK")
"""OpenSSL's reasons to reject a certificate as weak."""
_WHAT = {
    "cert": "the certificate chain",
    "key": "its private key",
    "ca": "the certificates of the authorities to trust",
}
Signature = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Paths as given in settings.

    Args:
        prefix: of the settings' names: `tls.`, `public.tls_`.
        cert: PEM, the certificate first, then those between it and its authority.
        key: PEM, without a password.
        ca: PEM of one or several authorities; None: peers' certificates are not requested.
    """

    prefix: str
    cert: Path
    key: Path
    ca: Path | None = None

    @property
    def all(self) -> tuple[tuple[str, Path], ...]:
        """Each file with its part of the setting's name."""
        ca = () if self.ca is None else (("ca", self.ca),)
        return (("cert", self.cert), ("key", self.key), *ca)

    def setting(self, part: str) -> str:
        """Return the dotted name of the setting of a part."""
        return self.prefix + part

    def signature(self) -> Signature:
        """Return a value that changes when a file does, also if a symbolic link is redirected.

        Raises:
            OSError: a file does not exist.
        """
        stats = (path.stat() for _, path in self.all)
        return tuple((s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for s in stats)

    def check(self) -> None:
        """Check that each file can be read, and is complete.

        Raises:
            StartupError: one cannot, or its last block of PEM is truncated.
        """
        for part, path in self.all:
            try:
                text = path.read_bytes()
            except OSError as error:
                name = self.setting(part)
                raise StartupError(
                    f"{name} {path} cannot be read ({os.strerror(error.errno or 0)}): set "
                    f"{_variable(name)} or {_flag(name)} to a PEM file with {_WHAT[part]}."
                ) from error
            if text.count(b"-----BEGIN ") != text.count(b"-----END "):
                raise StartupError(f"{self.setting(part)} {path} ends within a PEM block.")

    def load_into(self, context: ssl.SSLContext) -> None:
        """Load the certificate and the trusted authorities into a context.

        Raises:
            StartupError: a file cannot be used, or they do not belong together.
        """
        try:
            # Never prompts for the password: a process has no terminal.
            context.load_cert_chain(self.cert, self.key, password="")
        except ssl.SSLError as error:
            self._complain(error)
        if self.ca is not None:
            try:
                context.load_verify_locations(self.ca)
            except ssl.SSLError as error:
                text = f"{self.setting('ca')} {self.ca} has no PEM certificate"
                raise StartupError(f"{text}.") from error

    def _complain(self, error: ssl.SSLError) -> NoReturn:
        cert, key = (f"{self.setting(part)} {path}" for part, path in self.all[:2])
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"{key} does not match the certificate in {cert}"
        elif not _holds_certificate(self.cert):
            text = f"{cert} has no PEM certificate"
        elif error.reason in _WEAK:
            text = f"{cert} is too weak for TLS ({error.reason})"
        else:
            text = f"{key} has no PEM private key without a password"
        raise StartupError(f"{text}.") from error


def required(prefix: str, **paths: Path | None) -> bool:
    """Return whether files are configured: all of them, or none.

    Raises:
        StartupError: only some are configured.
    """
    given = [part for part, path in paths.items() if path is not None]
    missing = [prefix + part for part, path in paths.items() if path is None]
    if not given:
        return False
    if missing:
        names = " and ".join(f"{_variable(name)} or {_flag(name)}" for name in missing)
        raise StartupError(
            f"{prefix}{given[0]} is set without {' and '.join(missing)}: set {names} too, or "
            "unset all."
        )
    return True


def _variable(name: str) -> str:
    return "BATON_" + name.replace(".", "_").upper()


def _flag(name: str) -> str:
    return "--" + name.replace(".", "-").replace("_", "-")


def _holds_certificate(path: Path) -> bool:
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        return False
    return True
