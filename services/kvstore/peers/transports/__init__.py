"""How bytes travel between stores."""
