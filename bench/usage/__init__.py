"""What usage records can tell: how fast they are queried, and whether each response has one."""
