"""Shipped configurations, as TOML files."""
