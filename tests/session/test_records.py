"""Records and secrets: what was written comes back, what is broken is unknown and never none, secrets stay in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from modelplane_dagster.errors import ConfigError, UnreadableError
from modelplane_dagster.observed import Record
from resources.kubeconfig import parse_kubeconfig
from resources.records import Records
from resources.secrets import FolderSecrets, NoSecrets

RECORD = Record(
    name="c",
    source="EKS",
    location="us-east-1",
    account="project-7",
    digest="sha256:1",
    pools={"p": ("dra.cpu", "gpu.nvidia.com"), "q": ()},
    credentials=("ClusterProviderConfig", "prod"),
    kubeconfig="",
    deployments=(("default", "m"), ("recipes", "n")),
)


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    records = Records(tmp_path / "records")
    assert (records.read("c"), records.names()) == (None, ())
    records.write(RECORD)
    assert (records.read("c"), records.names()) == (RECORD, ("c",))
    records.forget("c")
    records.forget("c")
    assert (records.read("c"), records.names()) == (None, ())


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "7", '{"name": "c"}', '{"pools": 7}', "\udcff"])
def test_a_broken_record_is_unknown(tmp_path: Path, content: str) -> None:
    records = Records(tmp_path)
    records.write(RECORD)
    (tmp_path / "c.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UnreadableError, match="The record of cluster c can't be read"):
        records.read("c")
    assert records.names() == ("c",)


@pytest.mark.parametrize("field", ["pools", "credentials"])
@pytest.mark.parametrize("value", ["7", "null", "[]", '"x"'])
def test_a_record_with_a_field_of_another_type_is_unknown(tmp_path: Path, field: str, value: str) -> None:
    import json

    records = Records(tmp_path)
    records.write(RECORD)
    body = json.loads((tmp_path / "c.json").read_text())
    (tmp_path / "c.json").write_text(json.dumps({**body, field: json.loads(value)}))
    with pytest.raises(UnreadableError):
        records.read("c")


def test_secrets_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "ns" / "name").mkdir(parents=True)
    (tmp_path / "ns" / "name" / "key").write_bytes(b"k")
    (tmp_path.parent / "outside").write_bytes(b"o")
    secrets = FolderSecrets(tmp_path)
    assert secrets.read("ns", "name", "key") == b"k"
    for reference in (
        ("ns", "name", "other"),
        ("ns", "..", "../../outside"),
        ("ns", "name", ""),
        ("/etc", "passwd", ""),
    ):
        with pytest.raises(ConfigError):
            secrets.read(*reference)
    with pytest.raises(ConfigError, match="MODELPLANE_SECRETS names no folder"):
        NoSecrets().read("ns", "name", "key")


CONTENT = "hunter2"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"\xff\xfe", "isn't YAML"),
        (b"a: [hunter2", "isn't YAML"),
        (b"hunter2", "isn't a kubeconfig"),
        (b"- hunter2", "isn't a kubeconfig"),
        (b"clusters: []", "holds no cluster"),
        (b"token: hunter2", "holds no cluster"),
        (b"clusters: [{name: c}]\ncurrent-context: hunter2", "has no current context"),
        (b"clusters: [{name: c}]", "has no current context"),
        (b"clusters: [{name: c}]\ncontexts: [{context: {}}]", "has no current context"),
    ],
)
def test_a_kubeconfig_that_isnt_one_is_told_without_its_content(data: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        parse_kubeconfig(data, "cluster/c", "modelplane-system/c/kubeconfig")
    (found,) = wrong.value.findings
    assert (found.code, found.subject, found.message) == (
        "KubeconfigInvalid",
        "cluster/c",
        f"The kubeconfig at modelplane-system/c/kubeconfig {said}.",
    )
    assert CONTENT not in wrong.value.message


def test_a_record_that_never_noted_deployments_says_nothing_of_them(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.write(RECORD)
    path = tmp_path / "c.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "deployments"}))
    unsaid = replace(RECORD, deployments=None)
    assert records.read("c") == unsaid
    records.write(unsaid)
    assert records.read("c") == unsaid
