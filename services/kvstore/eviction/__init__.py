"""What leaves a tier to make room: pure objects, no I/O and no clock but a count of uses."""
