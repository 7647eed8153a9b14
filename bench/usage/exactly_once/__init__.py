"""Exact counting of usage while every process involved is killed."""
