"""JSON Schemas: which keywords are kept, and bounds where a schema sets none."""
