"""JSON Schemas: the supported keywords, and bounds where a schema sets none."""
