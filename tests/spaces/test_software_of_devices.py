"""Software exists on some machines only: every device, framework and switch of the catalogue."""

from collections.abc import Iterator

import pytest

from forerun.spaces.clusters import load_cluster
from forerun.spaces.clusters.catalogue import cluster_names
from forerun.spaces.clusters.device import device_names, load_device, read_entry
from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.frameworks import FrameworkProfile, all_switches, framework_names, load_framework
from forerun.spaces.frameworks.hardware import UNSTATED, DeviceKind, Hardware, device_kinds
from forerun.spaces.frameworks.switches import available, missing_hardware, on_devices, switched
from forerun.spaces.frameworks.usual import GENERIC, USUAL, usual_framework
from forerun.spaces.strategies.axes import Software
from forerun.spaces.strategies.software import can_turn_on, names_of

LINKS = ("nvswitch", "nvlink-mesh", "xgmi-mesh", "roce-mesh", "pcie", "torus", "infiniband")
OF_VENDORS = {
    ("NVIDIA",): ("cuda", "nccl", "deepep", "hybridep", "op_fuser", "tp_comm_overlap"),
    ("NVIDIA", "AMD"): ("te_", "transformer_engine", "nvte"),
    ("Huawei",): ("ascend", "npu", "moe_fb_overlap", "reuse_fp32"),
}
"""Parts of flags that name software of some vendors."""


def machine(device: str, link: str) -> DeviceKind:
    found = DEVICES[device]
    return DeviceKind(device=device, vendor=found.vendor, architecture=found.architecture, link=link)


DEVICES = {name: load_device(name) for name in device_names()}
ALL = [machine(device, link) for device in DEVICES for link in LINKS]


def runs(profile: FrameworkProfile, where: DeviceKind) -> bool:
    return profile.hardware.runs_on(where)


def words(profile: FrameworkProfile, name: str, setting: str) -> str:
    support = all_switches()[name].support(profile)
    written = {} if support is None else support.written(setting) or {}
    return " ".join(f"{key}={value}" for key, value in written.items()).lower()


def settings_on(profile: FrameworkProfile, where: DeviceKind) -> Iterator[tuple[str, str]]:
    """Yield the settings of switches that a search may run, advise or write."""
    here = on_devices(profile, [where])
    for name, setting in here.switches:
        yield name, setting
        for other in all_switches()[name].values:
            if other != setting and all_switches()[name].hardware_of(here, other).runs_on(where):
                yield name, other
    for text in names_of(can_turn_on(here, on=[where])):
        name, _, setting = text.partition("=")
        yield name, setting or "on"


def test_every_device_and_framework_names_who_makes_it_and_what_it_runs_on() -> None:
    vendors = set()
    for name in device_names():
        entry = read_entry("devices", name, "device")
        assert entry["vendor"] and entry["architecture"], name
        vendors.add(entry["vendor"])
    architectures = {load_device(name).architecture for name in device_names()}
    for name in framework_names():
        entry, profile = package_yaml("forerun.spaces.frameworks", "data", f"{name}.yaml"), load_framework(name)
        assert name == GENERIC or profile.vendors, name
        assert entry.get("vendors") or entry.get("like") or name == GENERIC, name
        assert set(profile.vendors) <= vendors, name
        assert all(any(a.startswith(b) for a in architectures) for b in profile.architectures), name
    for switch in all_switches().values():
        for hardware in switch.hardware.values():
            assert set(hardware.vendors) <= vendors, switch.name
            assert all(any(a.startswith(b) for a in architectures) for b in hardware.architectures), switch.name


@pytest.mark.parametrize("name", framework_names())
@pytest.mark.slow
def test_no_machine_runs_a_switch_that_it_does_not_have(name: str) -> None:
    profile = load_framework(name)
    for where in ALL:
        if not runs(profile, where):
            continue
        here = on_devices(profile, [where])
        assert not missing_hardware(here, available(here), [where]), where
        for switch, setting in settings_on(profile, where):
            assert all_switches()[switch].hardware_of(profile, setting).runs_on(where), (where, switch, setting)


@pytest.mark.parametrize("name", framework_names())
@pytest.mark.slow
def test_no_flag_names_software_of_another_vendor(name: str) -> None:
    profile = load_framework(name)
    for where in ALL:
        if not runs(profile, where):
            continue
        foreign = [word for vendors, some in OF_VENDORS.items() if where.vendor not in vendors for word in some]
        for switch, setting in settings_on(profile, where):
            written = words(profile, switch, setting)
            assert not any(word in written for word in foreign), (where.device, switch, setting, written)


@pytest.mark.parametrize(
    ("device", "link", "expected"),
    [
        ("h100-sxm", "nvswitch", "deepep"),
        ("h100-pcie", "pcie", "alltoall"),
        ("rtx-pro-6000", "pcie", "alltoall"),
        ("a100-sxm4-80", "nvswitch", "alltoall"),
        ("mi300x", "xgmi-mesh", "alltoall"),
    ],
)
def test_a_default_that_a_machine_does_not_have_is_what_ran_before(device: str, link: str, expected: str) -> None:
    found = on_devices(load_framework("megatron-lm"), [machine(device, link)])
    assert available(found)["dispatcher"] == expected
    assert found.dispatches_once is (expected == "deepep")


def test_settings_that_need_one_that_is_missing_go_with_it() -> None:
    profile = switched(load_framework("megatron-lm"), {"cuda-graphs": "full"})
    assert available(profile)["dispatcher"] == "hybridep"
    there = available(on_devices(profile, [machine("a100-sxm4-80", "nvswitch")]))
    assert (there["dispatcher"], there["cuda-graphs"]) == ("alltoall", "off")


def test_groups_of_nodes_run_what_all_of_them_have() -> None:
    both = [machine("h100-sxm", "nvswitch"), machine("a100-sxm4-80", "nvswitch")]
    assert available(on_devices(load_framework("megatron-lm"), both))["dispatcher"] == "alltoall"
    assert usual_framework(both) == "megatron-lm"
    assert usual_framework([*both, machine("tpu-v5p", "torus")]) == GENERIC


@pytest.mark.parametrize("cluster", cluster_names())
def test_the_usual_framework_runs_on_the_cluster(cluster: str) -> None:
    here = device_kinds(load_cluster(cluster))
    for decodes in (True, False):
        profile = load_framework(usual_framework(here, decodes=decodes))
        assert all(runs(profile, one) for one in here), (cluster, profile.name)


def test_usual_frameworks_are_of_known_vendors() -> None:
    assert set(USUAL) == {load_device(name).vendor for name in device_names()} | {UNSTATED}


def test_user_buffers_need_nvlink_between_devices_that_have_them() -> None:
    for device, link, expected in (
        ("h100-sxm", "nvswitch", Software.TP_COMM_OVERLAP),
        ("v100-sxm2-32", "nvswitch", Software.NONE),
        ("l40s", "pcie", Software.NONE),
    ):
        found = can_turn_on(load_framework("megatron-lm"), on=[machine(device, link)])
        assert found & Software.TP_COMM_OVERLAP == expected, device


def test_a_device_without_a_vendor_runs_anything_of_its_architecture() -> None:
    where = DeviceKind(device="mine", vendor=UNSTATED, architecture="unknown", link="pcie")
    assert Hardware(vendors=("NVIDIA",)).runs_on(where)
    assert not Hardware(architectures=("Hopper",)).runs_on(where)
