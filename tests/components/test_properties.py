"""What holds for every source and every set of drivers that it can be asked for."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from modelplane_dagster.cluster import SOURCES, ExternalDriver
from modelplane_dagster.components.effective import placed
from modelplane_dagster.components.join import join
from modelplane_dagster.components.lists import components_for
from modelplane_dagster.components.support import supported
from tests.components.worlds import AMD, CPU, NV, amd, amd_cpu, cpu, nvidia, nvidia_cpu, view

POOLS = {"nv": nvidia, "amd": amd, "cpu": cpu, "nvcpu": nvidia_cpu, "amdcpu": amd_cpu}


@st.composite
def worlds(draw):
    source = draw(st.sampled_from(SOURCES))
    kinds = draw(st.lists(st.sampled_from(sorted(POOLS)), unique=True, max_size=5))
    pools = [POOLS[kind](kind) for kind in kinds]
    low, high = draw(st.sampled_from([(None, None), (1, 1), (1, 4)]))
    fabric = draw(st.sampled_from(["None", "EFA", "InfiniBand"]))
    pools = [replace(p, minimum=low, maximum=high, fabric=fabric) for p in pools]
    external = ()
    if source == "Existing":
        names = draw(st.lists(st.sampled_from([NV, AMD, CPU]), unique=True, max_size=2))
        external = tuple(ExternalDriver(n, "CPU" if n == CPU else "GPU") for n in names)
    return view(source, *pools, external=external)


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_every_join_is_whole(world):
    components = components_for(world.source)
    result = join(world, components)
    assert result.findings == ()
    assert sorted(c.key for c in result.components) == sorted(c.key for c in components)
    done: set[str] = set()
    for joined in result.installed:
        assert set(joined.component.depends_on) <= done, joined.key
        done.add(joined.key)


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_no_stack_for_an_unclaimed_driver_and_none_lost_for_a_claimed_one(world):
    ours = world.claimed - {e.driver for e in world.external}
    result = join(world, components_for(world.source))
    for joined in result.installed:
        if joined.component.drivers:
            assert joined.component.drivers & ours, joined.key
            assert joined.serves
    published = {d for c in result.installed for d in c.component.published}
    rows = supported(world.source, components_for(world.source), world.external)
    assert published == {d for d in ours if d in rows and rows[d].via}


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_every_toleration_names_its_key_and_every_served_pool_is_tolerated(world):
    for joined in join(world, components_for(world.source)).installed:
        bound = joined.component.bound_to(world)
        for item in placed(joined):
            keys = {t.key for t in item.placement.tolerations}
            assert "" not in keys, (joined.key, item.name)
            if item.workload.reach is not None and item.workload.reach.kind != "all":
                assert {t.key for p in bound for t in p.taints} <= keys, (joined.key, item.name)


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_the_order_of_pools_changes_no_value(world):
    turned = replace(world, pools=tuple(reversed(world.pools)))
    made = {c.key: (c.values, c.manifests) for c in join(world, components_for(world.source)).components}
    other = {c.key: (c.values, c.manifests) for c in join(turned, components_for(world.source)).components}
    assert made == other
