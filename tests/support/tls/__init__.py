"""A certificate for `localhost` and 127.0.0.1, and keys: for tests alone, valid until 2126.

`openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj
/CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1` made certificate and key.
"""

import ssl
from pathlib import Path

_HERE = Path(__file__).parent
CERT = _HERE / "localhost.pem"
"""A self-signed certificate."""
KEY = _HERE / "localhost.key"
OTHER_KEY = _HERE / "other.key"
LOCKED_KEY = _HERE / "locked.key"
"""A key with a password."""


def client_context(*protocols: str) -> ssl.SSLContext:
    """Return a client's context that trusts the certificate, offering protocols by ALPN."""
    context = ssl.create_default_context(cafile=CERT)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context
