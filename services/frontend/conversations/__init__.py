"""`baton.v1.ConversationService`: stored conversations over gRPC, by what serves them over HTTP."""
