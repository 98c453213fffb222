"""`python -m modelplane_dagster` is the command line."""

from modelplane_dagster.cli import main

main()
