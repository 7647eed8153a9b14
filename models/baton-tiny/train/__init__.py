"""Trains the demo model from text that it makes up itself: nothing is downloaded."""
