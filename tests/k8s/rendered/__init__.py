"""What Kustomize renders: valid, complete, and by the rules."""
