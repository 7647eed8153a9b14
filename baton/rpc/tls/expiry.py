"""Validity periods of a process's certificate and of the authority that issued it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from baton.rpc.tls.files import CertificateFiles
from baton.settings import StartupError

if TYPE_CHECKING:
    from cryptography import x509

_WARN_SHARE = 0.2
"""Remaining share of the validity period at the first warning: cert-manager renews at a third."""
_WARN_SECONDS = 30 * 86400.0
"""Remaining seconds at the first warning, for a long validity period."""
_REMIND_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Life:
    """The validity period of a certificate, in seconds since the Unix epoch."""

    begins: float
    ends: float
    file: Path
    """File that contains the certificate."""

    @property
    def until(self) -> str:
        """End of the period, in ISO 8601."""
        return datetime.fromtimestamp(self.ends, UTC).isoformat()

    @property
    def warn_at(self) -> float:
        """Time of the first warning."""
        return self.ends - min(_WARN_SHARE * (self.ends - self.begins), _WARN_SECONDS)


class Reminder:
    """Limits warnings about the end of a validity period to one an hour."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self._said_until = 0.0

    def is_due(self, now: float) -> bool:
        """Return whether a warning is due; then false for the next hour."""
        if now < max(self.life.warn_at, self._said_until):
            return False
        self._said_until = now + _REMIND_SECONDS
        return True


def read_lives(files: CertificateFiles) -> tuple[Life, Life | None]:
    """Return the validity of the certificate and of its authority; None: no authority is
    configured.

    The authority is the one that issued it, directly or through intermediates: of these, the first
    to expire. If none of the trusted authorities did, as for a server whose authority differs from
    that of its clients, it is the last of them to expire.

    Raises:
        StartupError: a file contains something other than certificates.
    """
    chain = _certificates(files, "cert", files.cert)
    own = _life(chain[0], files.cert)
    if files.ca is None:
        return own, None
    trusted = _certificates(files, "ca", files.ca)
    signers = _signers(chain[0], chain[1:] + trusted)
    if signers:
        signer = min(signers, key=lambda each: each.not_valid_after_utc)
    else:
        signer = max(trusted, key=lambda each: each.not_valid_after_utc)
    return own, _life(signer, files.ca)


def _signers(leaf: "x509.Certificate", known: "list[x509.Certificate]") -> "list[x509.Certificate]":
    """Return the issuer of a certificate, the issuer of that one, and so on. Of several
    certificates of one issuer, return the one that expires last: OpenSSL uses the valid one."""
    found: list[x509.Certificate] = []
    current = leaf
    while True:
        signed = [each for each in known if each not in found and _signed(each, current)]
        if not signed:
            return found
        current = max(signed, key=lambda each: each.not_valid_after_utc)
        found.append(current)
        if current.issuer == current.subject:
            return found


def _signed(signer: "x509.Certificate", certificate: "x509.Certificate") -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(signer)
    except (InvalidSignature, ValueError, TypeError):  # another name, another key, or no such key
        return False
    return True


def _certificates(files: CertificateFiles, part: str, path: Path) -> "list[x509.Certificate]":
    from cryptography import x509  # only where there is a certificate

    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except ValueError as error:
        text = f"{files.setting(part)} {path} has an invalid certificate: {error}"
        raise StartupError(f"{text}.") from error


def _life(certificate: "x509.Certificate", path: Path) -> Life:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return Life(begins.timestamp(), ends.timestamp(), path)
