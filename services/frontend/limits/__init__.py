"""Limits of keys, projects and tenants: requests take their part of them before they are placed."""
