"""Containers and their volumes, by podman."""
