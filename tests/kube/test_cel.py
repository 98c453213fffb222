from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelplane_dagster.kube.cel import (
    DeviceFacts,
    SelectorEvaluationError,
    SelectorSyntaxError,
    compile_selector,
)
from modelplane_dagster.kube.versions import SemverValue

H100 = DeviceFacts(
    "gpu.nvidia.com",
    {
        "productName": "NVIDIA H100 80GB HBM3",
        "driverVersion": SemverValue("580.95.5+build"),
        "resource.kubernetes.io/numaNode": 1,
        "gpu.nvidia.com/healthy": True,
    },
    {"memory": "80Gi", "gpu.nvidia.com/sms": "132"},
    "gpu-0",
)
NV = 'device.attributes["gpu.nvidia.com"]'
CAP = 'device.capacity["gpu.nvidia.com"]'


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ('device.driver == "gpu.nvidia.com"', True),
        ('device.driver == "gpu.amd.com"', False),
        (f'{NV}.productName == "NVIDIA H100 80GB HBM3"', True),
        (f'{NV}.productName.matches("H[12]00")', True),
        (f'{NV}.productName.lowerAscii().contains("h100")', True),
        (f"{NV}.healthy", True),
        ('device.attributes["resource.kubernetes.io"].numaNode == 1', True),
        ('device.attributes["resource.kubernetes.io"]["numaNode"] in [0, 2]', False),
        # Unlike types are unequal, not an error.
        (f"{NV}.productName == 5", False),
        (f'{NV}.driverVersion == "580.95.5"', False),
        (f'{CAP}.memory.compareTo(quantity("20Gi")) >= 0', True),
        (f'{CAP}.memory.isGreaterThan(quantity("80Gi"))', False),
        (f'{CAP}.memory.isLessThan(quantity("86G"))', True),
        (f'{CAP}.memory == quantity("81920Mi")', True),
        (f'quantity("132") == {CAP}.sms && {CAP}.sms.asInteger() > 100', True),
        (f'{CAP}.memory.sub(quantity("60Gi")).compareTo(quantity("20Gi")) == 0', True),
        (f'{CAP}.sms.add(1).compareTo(quantity("133")) == 0', True),
        (f"{CAP}.memory.sign() == 1 && {CAP}.memory.isInteger()", True),
        ('quantity("1500m").asApproximateFloat() == 1.5 && !quantity("1500m").isInteger()', True),
        ('isQuantity("1Gi") && !isQuantity("1K") && !isQuantity(" 1")', True),
        (f'{NV}.driverVersion.compareTo(semver("580.95.5")) == 0', True),
        (f'{NV}.driverVersion == semver("580.95.5+other")', True),
        (f'{NV}.driverVersion.isGreaterThan(semver("580.9.99"))', True),
        (f'{NV}.driverVersion.isLessThan(semver("580.95.5-rc.1"))', False),
        (f"{NV}.driverVersion.major() == 580 && {NV}.driverVersion.minor() == 95", True),
        ('isSemver("1.2.3") && !isSemver("1.2") && !isSemver("v1.2.3")', True),
        ('semver("v1.02", true) == semver("1.2.0") && isSemver("1", true)', True),
        # An unknown domain is an empty map; what is missing in it is asked for with has, optionals or a default.
        ('has(device.attributes["example.com"].model)', False),
        ('device.attributes["example.com"].?model.orValue("none") == "none"', True),
        ("device.attributes[?'example.com'].orValue({}).?model.hasValue()", False),
        ('device.capacity["example.com"].?memory.orValue(quantity("0")).sign() == 0', True),
        (f'cel.bind(d, {NV}, d.productName.startsWith("NVIDIA") && d.healthy)', True),
        (f'{NV}.exists(name, name == "productName")', True),
        ("device.allowMultipleAllocations", False),
        ("device.?allowMultipleAllocations.orValue(false)", False),
    ],
)
def test_a_selector_judges_a_device(text: str, matches: bool) -> None:
    assert compile_selector(text).matches(H100) is matches


def test_a_shareable_device_says_so() -> None:
    shared = DeviceFacts("dra.cpu", {}, {"dra.cpu/cpu": "6"}, allow_multiple=True)
    text = 'device.allowMultipleAllocations && device.capacity["dra.cpu"].cpu.compareTo(quantity("6")) == 0'
    assert compile_selector(text).matches(shared)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (f"{NV}.model == 'x'", "Key not found in map"),
        ('device.attributes["example.com"].model == "x"', "Key not found in map"),
        (f"{CAP}.vram.isGreaterThan(quantity('1'))", "Key not found in map"),
        (f"{NV}.productName", "no bool"),
        (f'{NV}.driverVersion.compareTo(quantity("1")) == 0', "only two quantities or two versions"),
        (f'{NV}.driverVersion.startsWith("580")', "startsWith"),
        (f"{CAP}.memory >= 20", ""),
        ('quantity("1K").sign() == 1', "'1K' is not a quantity"),
        ('semver("1.2").major() == 1', "'1.2' is not a semantic version"),
        ("1 / 0 == 1", "divide by zero"),
        ('quantity("1500m").asInteger() == 1', "no 64-bit integer"),
    ],
)
def test_an_error_is_never_taken_for_no_match(text: str, part: str) -> None:
    with pytest.raises(SelectorEvaluationError) as caught:
        compile_selector(text).matches(H100)
    assert part in caught.value.message
    assert "gpu-0" in caught.value.message
    with pytest.raises(SelectorEvaluationError):
        compile_selector(text).matches(H100)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "Syntax error"),
        ("device.driver ==", "Syntax error"),
        ("device.vendor == 'x'", "undefined field 'vendor'"),
        ("device.driver == 1", "no matching overload"),
        ("device.driver", "gives STRING"),
        ("1 + 1", "gives INT"),
        ("dev.driver == 'x'", "undeclared reference"),
        ('quantity("1").compareTo(semver("1.0.0")) == 0', "no matching overload"),
        ('quantity("1").text == "1"', "undefined field 'text'"),
        (f"{CAP}.memory < quantity('1')", "no matching overload"),
        ("quantity(1).sign() == 1", "no matching overload"),
        ("(" * 200 + "true" + ")" * 200, "recursion limit"),
        ("true\udc00", "isn't Unicode"),
        ("true || " * 1280 + "true", "10244 bytes long, and the limit is 10240"),
    ],
)
def test_what_does_not_compile_says_why(text: str, part: str) -> None:
    with pytest.raises(SelectorSyntaxError) as caught:
        compile_selector(text)
    assert part in caught.value.message
    assert "\n" not in caught.value.message


def test_the_size_limit_counts_bytes() -> None:
    fits = "device.driver == '" + "é" * 5110 + "'"
    assert len(fits.encode()) == 10239
    assert not compile_selector(fits).matches(H100)
    with pytest.raises(SelectorSyntaxError):
        compile_selector(fits + "  ")


def test_identical_devices_are_judged_once_and_types_are_told_apart() -> None:
    selector = compile_selector('device.attributes["d"].x == 1')
    assert selector is compile_selector('device.attributes["d"].x == 1')
    one, same, flag = (DeviceFacts("d", {"x": v}, name=n) for v, n in ((1, "a"), (1, "b"), (True, "c")))
    assert (one.shape == same.shape, one.shape == flag.shape) == (True, False)
    assert [selector.matches(d) for d in (one, same, flag)] == [True, True, False]
    assert one != same


def test_names_are_looked_up_whole_then_bare() -> None:
    assert H100.attribute("gpu.nvidia.com/productName") == "NVIDIA H100 80GB HBM3"
    assert H100.attribute("resource.kubernetes.io/numaNode") == 1
    assert H100.attribute("healthy") is True
    assert H100.attribute("gpu.amd.com/productName") is None
    assert H100.amount("gpu.nvidia.com/memory") == "80Gi"


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="device.driv()[]\"'=!&|?:<>1+-,{} quantiysmé\n", max_size=60))
def test_any_text_compiles_or_says_why(text: str) -> None:
    try:
        selector = compile_selector(text)
    except SelectorSyntaxError:
        return
    try:
        assert selector.matches(H100) in (True, False)
    except SelectorEvaluationError:
        return
