"""Limits of keys, projects and tenants, shared by all frontends without a common counter.

Each limit has a bucket in one router, and frontends spend prepaid chunks of it. Pure: time is an
argument, and messages are passed in and out.
"""
