"""`class/<class>`: what hardware a class describes, which drivers it claims, and what it becomes on each source."""

import dagster as dg

from assets.common import OWNERS, Build
from assets.keys import class_key, group
from assets.results import table
from modelplane_dagster.canonical import digest
from modelplane_dagster.cluster import SOURCES
from modelplane_dagster.manifests.classes import Device
from modelplane_dagster.roles import class_drivers, role_of


def class_asset(build: Build, name: str) -> dg.AssetsDefinition:
    """Reads nothing live."""
    cls = build.fleet.classes[name]
    key = class_key(name)

    @dg.asset(
        key=key,
        group_name=group("classes"),
        owners=OWNERS,
        kinds={"yaml"},
        description=f"{cls.spec.description or name}: devices, drivers and role of a class of nodes.",
        metadata=build.manifest_line("InferenceClass", name),
    )
    def _class() -> dg.MaterializeResult:
        drivers = class_drivers(cls)
        provider = cls.spec.provisioning.provider if cls.spec.provisioning else None
        sources = [s for s in SOURCES if provider in (None, s)]
        supported = {s: set(build.planner.supported(s)) for s in sources}
        rows = [
            {
                "source": s,
                "role": role_of(drivers).value,
                "supported": all(d in supported[s] for d in drivers),
                "unsupported drivers": ", ".join(d for d in drivers if d not in supported[s]) or "-",
            }
            for s in sources
        ]
        return dg.MaterializeResult(
            data_version=dg.DataVersion(digest(cls.spec.model_dump(mode="json"))),
            metadata={
                "drivers": ", ".join(drivers) or "-",
                "role": role_of(drivers).value,
                "devices": table(device_row(d) for d in cls.spec.devices),
                "on each source": table(rows),
            },
        )

    return _class


def device_row(device: Device) -> dict[str, str | int]:
    capacity = ", ".join(f"{k}={v.value}" for k, v in device.capacity.items())
    attributes = ", ".join(f"{k}={v.value}" for k, v in device.attributes.items())
    return {
        "device": device.name,
        "claim": device.claim,
        "driver": device.driver,
        "count": device.count,
        "capacity": capacity or "-",
        "attributes": attributes or "-",
    }
