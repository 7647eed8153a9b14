"""The life of one pod."""
