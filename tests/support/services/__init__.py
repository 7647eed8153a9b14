"""Services, and clusters of them, in the test's own process."""
