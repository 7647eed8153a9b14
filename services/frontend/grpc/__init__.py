"""The public gRPC service, `baton.v1.InferenceService`."""
