"""Requests: parsed, validated, resolved to a model and a tenant's salt, and recorded."""
