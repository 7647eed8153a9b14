"""What manifests say: pure functions of objects as dictionaries."""
