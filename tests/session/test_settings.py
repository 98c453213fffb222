"""Settings from the environment: what is set, what is empty, what isn't a value of its setting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modelplane_dagster.errors import ConfigError
from resources.settings import from_environment

HOME = {"MODELPLANE_HOME": "/nowhere/home"}
NAMES = ("TARGET", "FLEET", "LAB", "LAB_POOL_SECONDS", "CHART_MIRROR", "COMPONENTS", "SECRETS", "WEBSERVER", "GRACE")


def test_an_empty_value_is_an_unset_one() -> None:
    assert from_environment({**HOME, **{f"MODELPLANE_{n}": "" for n in NAMES}}) == from_environment(HOME)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("LAB", "embedded", {}),
        ("LAB", "kubernetes", {"lab_kind": "kubernetes"}),
        ("LAB_POOL_SECONDS", "0.05", {}),
        ("TARGET", "live", {"target": "live", "grace": 120.0}),
        ("TARGET", "lab", {}),
        ("GRACE", "7", {"grace": 7.0}),
        ("SECRETS", "/s", {"secrets": "/s"}),
    ],
)
def test_a_value_sets_its_setting_alone(name: str, value: str, expected: dict[str, object]) -> None:
    assert from_environment({**HOME, f"MODELPLANE_{name}": value}) == replace(from_environment(HOME), **expected)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LAB", "kind", "MODELPLANE_LAB is 'kind'; it is embedded (the default) or kubernetes."),
        ("LAB", "Kubernetes", "MODELPLANE_LAB is 'Kubernetes'; it is embedded (the default) or kubernetes."),
        ("TARGET", "moon", "MODELPLANE_TARGET is 'moon'; it is lab (the default) or live."),
        ("GRACE", "-1", "MODELPLANE_GRACE is '-1'; it is a number of seconds."),
        ("LAB_POOL_SECONDS", "soon", "MODELPLANE_LAB_POOL_SECONDS is 'soon'; it is a number of seconds."),
        ("LAB_CLUSTER_SECONDS", "nan", "MODELPLANE_LAB_CLUSTER_SECONDS is 'nan'; it is a number of seconds."),
        ("LAB_DELETE_SECONDS", "-0.1", "MODELPLANE_LAB_DELETE_SECONDS is '-0.1'; it is a number of seconds."),
    ],
)
def test_what_isnt_a_value_is_named_with_what_is(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        from_environment({**HOME, f"MODELPLANE_{name}": value})
    assert raised.value.message == message
