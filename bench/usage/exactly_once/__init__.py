"""Usage counted while everything that counts it is killed."""
