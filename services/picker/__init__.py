"""The endpoint picker: tells gateways which frontend gets a request, or that it must wait."""
