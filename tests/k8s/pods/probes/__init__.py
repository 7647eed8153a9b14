"""Startup, liveness and readiness."""
