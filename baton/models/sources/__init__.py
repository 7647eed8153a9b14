"""Where models are: what a source has, and its bytes from any position on."""
