"""The environment variables that Kubernetes sets for each Service of a namespace.

A Service `baton-grpc` gives `BATON_GRPC_PORT=tcp://10.0.0.1:9000` and more, which look like
settings. See "Environment variables" in Kubernetes' documentation of Services.
"""

import re
from collections.abc import Mapping

_NAME = re.compile(r"_SERVICE_(HOST|PORT)(_\w+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?$")
"""No setting has such a name."""
_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
"""Value of the other variables, which end in `_PORT` as settings may."""


def service_variables(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the variables that Kubernetes has set for Services."""
    return frozenset(
        name
        for name, value in environ.items()
        if _NAME.search(name) or (name.endswith("_PORT") and _ADDRESS.match(value))
    )
