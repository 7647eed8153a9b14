"""What Kustomize renders, and what must be true of it that no schema says."""
