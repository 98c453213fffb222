"""The instance that the command line opens."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from assets.instance import open_instance
from tests.definitions.worlds import settings


def test_it_is_made_on_first_use_and_sqlite_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    instance = open_instance(settings(tmp_path))
    try:
        assert (tmp_path / "dagster" / "dagster.yaml").is_file()
        assert instance.run_monitoring_enabled
        with create_engine(f"sqlite:///{tmp_path}/other.db").connect() as connection:
            assert connection.execute(text("PRAGMA synchronous")).scalar() == 0
    finally:
        instance.dispose()
