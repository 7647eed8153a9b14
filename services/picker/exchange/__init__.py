"""One HTTP request in Envoy's external processing protocol: messages in, messages out."""
