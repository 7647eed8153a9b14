"""The frontend: the clients' endpoint. Tokenizes, drives prefill and decode, streams text."""
