from __future__ import annotations

import pytest

from modelplane_dagster.kube.versions import KubernetesVersion, SemverError, SemverValue, parse_semver


@pytest.mark.parametrize(
    ("text", "triple"),
    [
        ("1.36", (1, 36, 0)),
        ("1.36+", (1, 36, 0)),
        ("1.35.2-gke.100", (1, 35, 2)),
        ("v1.36.1+3", (1, 36, 1)),
        ("v1.36.3+k3s1", (1, 36, 3)),
        ("1.34.1-k3s1", (1, 34, 1)),
        ("v1.33.4-eks-113cf36", (1, 33, 4)),
        (" 1.36.0\n", (1, 36, 0)),
        ("1.9.11", (1, 9, 11)),
    ],
)
def test_every_clouds_spelling_is_read(text: str, triple: tuple[int, int, int]) -> None:
    version = KubernetesVersion.parse(text)
    assert version is not None
    assert version.triple == triple
    assert str(version) == text.strip()


@pytest.mark.parametrize(
    "text", [None, "", "latest", "stable", "regular", "1", "v1", "1.x", "one.two", "1.36.1.2", "-"]
)
def test_what_names_no_version_is_unknown(text: str | None) -> None:
    assert KubernetesVersion.parse(text) is None


def test_order_is_by_number_and_ignores_the_suffix() -> None:
    texts = ["1.36.1", "1.9.9", "v1.36", "1.35.11-gke.2", "1.35.2-gke.999"]
    known = [v for v in map(KubernetesVersion.parse, texts) if v is not None]
    assert [str(v) for v in sorted(known)] == ["1.9.9", "1.35.2-gke.999", "1.35.11-gke.2", "v1.36", "1.36.1"]
    assert KubernetesVersion(1, 36) == KubernetesVersion.parse("1.36.0-gke.1")
    assert len({KubernetesVersion(1, 36), KubernetesVersion(1, 36, 0, "1.36")}) == 1
    assert KubernetesVersion(1, 34) <= KubernetesVersion(1, 34, 1)
    assert KubernetesVersion(1, 36, 4).release == "1.36"


@pytest.mark.parametrize("text", ["9.0", "v9.0.0", "1.02.3", "1", "", "1.0.0-01", "1.0.0 ", "1.2.3-" + "a" * 64])
def test_a_dra_version_is_strict(text: str) -> None:
    with pytest.raises(SemverError):
        SemverValue.parse(text)


def test_a_dra_version_orders_prereleases_first() -> None:
    assert parse_semver("1.0.0-rc.1") < parse_semver("1.0.0")
    assert SemverValue.parse("550.54.15").version.minor == 54
