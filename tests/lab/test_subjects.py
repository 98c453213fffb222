"""What a fault may be set on: what is there, by the kinds that are for it; anything else is told with what is near."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from modelplane_dagster.errors import ConfigError
from resources.lab.agents.faults import AgentFault
from resources.lab.clouds.model import Fault
from resources.lab.control import FAULTS
from resources.lab.subjects import KINDS, check_fault
from tests.e2e.site import ROOT, site
from tests.e2e.test_faults import METAL, SEED

KNOWN = ("cloud/GKE", "cluster/metal", "cluster/gke-iowa", "pool/metal/cpu", "pool/gke-iowa/l4", "pool/gke-iowa/a100")
OTHERS = "Another fleet is named by --fleet or MODELPLANE_FLEET."


def test_every_kind_is_documented_with_its_subjects() -> None:
    words = {"pool": "`pool/C/P`", "cluster": "`cluster/C`", "cloud": "`cloud/SOURCE`"}
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|", (ROOT / "docs/lab.md").read_text(), re.MULTILINE))
    assert {kind: rows.get(kind) for kind in KINDS} == {
        k: ", ".join(words[f] for f in forms) for k, forms in KINDS.items()
    }
    assert set(KINDS) == {*Fault, *AgentFault, *(k.replace("_", "-") for k in FAULTS)}


@pytest.mark.parametrize(
    ("subject", "kind"),
    [
        ("pool/metal/cpu", "node-without-label"),
        ("pool/gke-iowa/l4", "no-capacity"),
        ("pool/gke-iowa/l4", "lost-reply"),
        ("cluster/gke-iowa", "lost-reply"),
        ("cluster/metal", "drop_connections"),
        ("cluster/metal", "drop-connections"),
        ("cloud/GKE", "throttling"),
    ],
)
def test_what_is_there_is_taken(subject: str, kind: str) -> None:
    check_fault(subject, kind, KNOWN)


@pytest.mark.parametrize(
    ("subject", "kind", "message"),
    [
        (
            "pool/gke-iowa/l40",
            "no-capacity",
            f"Neither the lab nor the fleet's manifests hold pool/gke-iowa/l40; the nearest: pool/gke-iowa/l4, pool/gke-iowa/a100. {OTHERS}",
        ),
        (
            "cluster/zzz",
            "slow",
            f"Neither the lab nor the fleet's manifests hold cluster/zzz. There are: cluster/gke-iowa, cluster/metal. {OTHERS}",
        ),
        ("cloud/gke", "throttling", f"Neither the lab nor the fleet's manifests hold cloud/gke. There are: cloud/GKE. {OTHERS}"),
        ("cluster/metal", "quota", "The fault quota is set on pool/C/P, and 'cluster/metal' isn't one."),
        ("pool/metal/cpu", "lost-replies", None),
        ("metal", "lost-reply", "The fault lost-reply is set on pool/C/P or cluster/C, and 'metal' isn't one."),
        ("cluster/", "slow", "The fault slow is set on cluster/C, and 'cluster/' isn't one."),
    ],
)  # fmt: skip
def test_what_isnt_is_told_with_what_is_near(subject: str, kind: str, message: str | None) -> None:
    with pytest.raises(ConfigError) as raised:
        check_fault(subject, kind, KNOWN)
    told = raised.value.message
    assert told == (message or "The lab knows no fault 'lost-replies'; the nearest: lost-reply. Its faults: " + ", ".join(sorted(KINDS)) + ".")  # fmt: skip


@pytest.mark.lab
def test_the_command_takes_the_fleets_and_the_labs_own_and_nothing_else(tmp_path: Path) -> None:
    with site(tmp_path, seed=SEED) as made:
        made.copy("fleet/clusters/civo-london.yaml", "fleet/classes/civo-cpu.yaml")

        def fault(what: str, subject: str, kind: str, *more: str) -> tuple[int, str]:
            ran = made.run("lab", "fault", what, subject, kind, *more).clean()
            return ran.status, (ran.out or ran.err).strip()

        # The manifests' pool isn't made yet; the seed's cluster stands in no manifest.
        assert fault("set", "pool/civo-london/cpu", "no-capacity") == (0, "pool/civo-london/cpu: no-capacity set")
        assert fault("set", "pool/metal/cpu", "node-without-label") == (0, "pool/metal/cpu: node-without-label set")
        status, told = fault("set", "pool/metal/cpus", "node-without-label")
        assert (status, "; the nearest: pool/metal/cpu." in told) == (2, True)
        assert fault("set", "cluster/civo-paris", "lost-reply")[0] == 2
        assert fault("clear", "pool/metal/cpus", "node-without-label")[0] == 2
        # The manifest goes, the fault stays, and is lifted all the same.
        (made.folder / "civo-london.yaml").unlink()
        assert fault("clear", "pool/civo-london/cpu", "no-capacity") == (0, "pool/civo-london/cpu: no-capacity cleared")
        assert fault("set", "pool/civo-london/cpu", "no-capacity")[0] == 2
        elsewhere = made.folder.with_name("elsewhere.yaml")
        elsewhere.write_text(METAL.replace("name: metal}", "name: far}"))
        assert fault("set", "pool/far/cpu", "slow-pool")[0] == 2
        assert fault("set", "pool/far/cpu", "slow-pool", "--fleet", str(elsewhere))[0] == 0
