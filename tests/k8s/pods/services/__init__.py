"""Addresses and names of Services, and what stands behind them."""
