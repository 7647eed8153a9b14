"""Frames and header blocks of HTTP/2 as bytes: codes, errors, reading and writing."""
