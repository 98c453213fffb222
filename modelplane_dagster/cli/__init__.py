"""The command line. Contracts: commands, JSON and exit statuses are relied on from outside."""

from modelplane_dagster.cli.main import main

__all__ = ["main"]
