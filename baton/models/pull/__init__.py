"""Downloads of models: resumed, bounded, checked, and visible only once they are complete."""
