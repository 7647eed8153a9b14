"""What a request may be: parsed, validated, resolved to a model and a tenant's salt."""
