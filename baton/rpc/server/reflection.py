"""grpc.reflection, both versions: grpcurl and buf request v1 first, older tools know v1alpha only.

grpcio-reflection implements v1alpha. The messages of v1 differ only in the package name, which is
not on the wire, so that one servicer serves both.
"""

from collections.abc import Iterable

import grpc
from google.protobuf import descriptor_pool, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from baton.rpc.server.methods import MethodTable

SERVICE = "grpc.reflection.v1.ServerReflection"
_FILE = "grpc/reflection/v1/reflection.proto"


def add_reflection(methods: MethodTable, services: Iterable[str]) -> None:
    """Serve reflection of services and of itself.

    Args:
        methods: methods of the server.
        services: full names, for example `grpc.health.v1.Health`.
    """
    _describe_itself()
    names = [*services, SERVICE, reflection.SERVICE_NAME]
    servicer = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, methods)
    info = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    methods.add_registered_method_handlers(SERVICE, {"ServerReflectionInfo": info})


def _describe_itself() -> None:
    """Register v1's file where the servicer looks for files: clients ask for the service they
    call."""
    pool = descriptor_pool.Default()
    try:
        pool.FindFileByName(_FILE)
    except KeyError:
        file = FileDescriptorProto()
        reflection_pb2.DESCRIPTOR.CopyToProto(file)
        text = text_format.MessageToString(file).replace("v1alpha", "v1")
        pool.AddSerializedFile(text_format.Parse(text, FileDescriptorProto()).SerializeToString())
