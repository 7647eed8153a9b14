"""Message classes of the etcd v3 API.

The `etcd3` package cannot be imported with protobuf ≥ 4, but its generated files carry the
serialized descriptors. They are read out of the files' text, without importing them, into a
separate descriptor pool, because other packages may also use the names `kv.proto` and `rpc.proto`.
"""

import ast
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool, message_factory

_FILES = ("kv_pb2.py", "auth_pb2.py", "rpc_pb2.py")  # in the order of their imports
# One literal: parsing all of the file would be a tenth of a process's start.
_SERIALIZED = re.compile(r"^ *serialized_pb=_b\(('.*')\)$", re.MULTILINE)


def _serialized(source: Path) -> bytes:
    """Return the argument of `serialized_pb=_b('...')` in a generated file."""
    found = _SERIALIZED.search(source.read_text(encoding="utf-8"))
    if found is None:
        raise ImportError(f"{source} carries no serialized descriptor")
    return str(ast.literal_eval(found[1])).encode("latin-1")


def _load() -> descriptor_pool.DescriptorPool:
    spec = find_spec("etcd3")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("the etcd3 package is not installed")
    directory = Path(spec.submodule_search_locations[0]) / "etcdrpc"
    pool = descriptor_pool.DescriptorPool()
    for name in _FILES:
        pool.AddSerializedFile(_serialized(directory / name))
    return pool


_POOL = _load()


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


RangeRequest = _message("etcdserverpb.RangeRequest")
RangeResponse = _message("etcdserverpb.RangeResponse")
PutRequest = _message("etcdserverpb.PutRequest")
PutResponse = _message("etcdserverpb.PutResponse")
TxnRequest = _message("etcdserverpb.TxnRequest")
TxnResponse = _message("etcdserverpb.TxnResponse")
Compare = _message("etcdserverpb.Compare")
WatchRequest = _message("etcdserverpb.WatchRequest")
WatchResponse = _message("etcdserverpb.WatchResponse")
LeaseGrantRequest = _message("etcdserverpb.LeaseGrantRequest")
LeaseGrantResponse = _message("etcdserverpb.LeaseGrantResponse")
LeaseRevokeRequest = _message("etcdserverpb.LeaseRevokeRequest")
LeaseRevokeResponse = _message("etcdserverpb.LeaseRevokeResponse")
LeaseKeepAliveRequest = _message("etcdserverpb.LeaseKeepAliveRequest")
LeaseKeepAliveResponse = _message("etcdserverpb.LeaseKeepAliveResponse")
AlarmRequest = _message("etcdserverpb.AlarmRequest")
AlarmResponse = _message("etcdserverpb.AlarmResponse")

WATCH_DELETE = 1
"""`mvccpb.Event.EventType.DELETE`."""
ALARMS = {1: "NOSPACE", 2: "CORRUPT"}
"""`etcdserverpb.AlarmType`."""
