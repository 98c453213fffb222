"""The pools that one node sees: generations, what is missing, what is invalid, what can't be read."""

from __future__ import annotations

from typing import Any

import pytest

from modelplane_dagster.kube.node_pools import MalformedSelectorError, Published
from modelplane_dagster.kube.objects import NodeFacts, Term
from modelplane_dagster.kube.scheduling import is_valid
from modelplane_dagster.kube.slices import Slice
from tests.kube.bodies import device, slice_body

N1, N2 = NodeFacts("n1"), NodeFacts("n2")


def seen(node: NodeFacts, *bodies: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """Pool, state, device names."""
    pools = Published(Slice.parse(b) for b in bodies).pools(node)
    return [(p.name, p.state, [d.name for s in p.slices for d in s.devices]) for p in pools]


def test_pools_and_slices_are_in_the_order_of_their_names() -> None:
    bodies = [
        slice_body("b", [device("y")], slices=2, pool="p"),
        slice_body("a", [device("x")], slices=2, pool="p"),
        slice_body("c", [device("z")], pool="o"),
    ]
    assert seen(N1, *bodies) == [("o", "usable", ["z"]), ("p", "usable", ["x", "y"])]
    assert seen(N2, *bodies) == []


def test_each_node_sees_the_newest_generation_that_is_for_it() -> None:
    old = slice_body("a", [device("old")], pool="p", generation=1)
    new = slice_body("b", [device("new")], pool="p", generation=2, nodeName="n2")
    assert seen(N1, old, new) == [("p", "usable", ["old"])]
    assert seen(N2, old, new) == [("p", "usable", ["new"])]


def test_an_old_generation_that_isnt_whole_on_the_node_gives_way_to_a_newer_one() -> None:
    old = slice_body("a", [device("old")], pool="p", generation=1, slices=2)
    new = slice_body("b", [device("new")], pool="p", generation=2, nodeName="n2")
    assert seen(N1, old, new) == []
    assert seen(N1, old) == [("p", "incomplete", [])]


def test_names_are_compared_on_one_node() -> None:
    one = slice_body("a", [device("x")], pool="p", slices=2)
    other = slice_body("b", [device("x")], pool="p", slices=2, nodeName="n2")
    assert seen(N1, one, other) == [("p", "usable", ["x"])]
    twice = slice_body("c", [device("x"), device("x")], pool="q")
    assert seen(N1, twice) == [("q", "invalid", [])]


def test_counters_belong_to_every_node() -> None:
    counters = [{"name": "card", "counters": {"memory": {"value": "8"}}}]
    shared = slice_body("a", [], pool="p", slices=2, nodeName="n2", sharedCounters=counters)
    used = {"counterSet": "card", "counters": {"memory": {"value": "4"}}}
    mine = slice_body("b", [device("x", consumesCounters=[used])], pool="p", slices=2)
    assert seen(N1, shared, mine) == [("p", "usable", ["x"])]
    lost = {"counterSet": "other", "counters": {"memory": {"value": "4"}}}
    assert seen(N1, shared, slice_body("b", [device("x", consumesCounters=[lost])], pool="p", slices=2)) == [
        ("p", "invalid", [])
    ]


def test_a_selector_that_cant_be_read_is_an_error() -> None:
    term = {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["x"]}]}
    body = slice_body("a", [device("x")], nodeSelector={"nodeSelectorTerms": [term]})
    with pytest.raises(MalformedSelectorError):
        seen(N1, body)


@pytest.mark.parametrize(
    ("expression", "valid"),
    [
        ({"key": "a", "operator": "In", "values": ["x"]}, True),
        ({"key": "a", "operator": "In"}, False),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "a", "operator": "Exists", "values": ["x"]}, False),
        ({"key": "a", "operator": "Lt", "values": ["007"]}, True),
        ({"key": "a", "operator": "Lt", "values": ["x"]}, False),
        ({"key": "a", "operator": "Lt", "values": ["1", "2"]}, False),
        ({"key": "a", "operator": "Sort", "values": ["1"]}, False),
    ],
)
def test_terms_that_can_be_read(expression: dict[str, Any], valid: bool) -> None:
    assert is_valid(Term.parse({"matchExpressions": [expression]})) is valid


def test_fields_take_one_value() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    assert is_valid(Term.parse({"matchFields": [field]}))
    assert not is_valid(Term.parse({"matchFields": [field | {"values": ["a", "b"]}]}))
