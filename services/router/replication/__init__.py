"""Replicas of hot prefixes on more stores, before a worker asks for them there."""
