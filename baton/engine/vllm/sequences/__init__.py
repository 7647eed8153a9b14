"""Sequences within vLLM: their requests, the policy that holds each back, and their reports."""
