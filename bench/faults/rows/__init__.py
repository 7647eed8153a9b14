"""The faults, one row each, by module."""

from bench.faults.rows import clients, etcd, network, processes, storage
from bench.faults.rows.base import ENGINES, Row

__all__ = ["ENGINES", "ROWS", "Row"]

ROWS = {
    row.name: row
    for module in (processes, network, etcd, storage, clients)
    for row in module.ROWS.added
}
"""The rows by name."""
