"""What a row of measured runs says of its software: framework, release, kernels, and what its source had changed."""

from dataclasses import replace
from pathlib import Path

import pytest
from forerun_measured import mapped, reason

from forerun.search.measured.intervals.cells import kind_of
from forerun.search.measured.validate import predict, vocabulary
from forerun.spaces.frameworks import FrameworkProfile, framework_names, load_framework
from forerun.spaces.strategies import Recompute

MEASURED = Path(__file__).resolve().parents[2] / "benchmarks" / "measured"


@pytest.mark.parametrize(
    ("attention", "notes", "kernel"),
    [
        ("flash", "kernel=flash_attentionv1.0.8 status=OOM", "flash1"),
        ("flash", "kernel=flash_attention2 + RMS kernel", "flash"),
        ("unfused", "kernel=torch", "unfused"),
        ("fused_softmax", "", "fused_softmax"),
    ],
)
def test_notes_name_the_version_of_the_attention_kernel(
    tmp_path: Path, attention: str, notes: str, kernel: str
) -> None:
    framework = mapped(tmp_path, framework="AA-Scaling", attention=attention, notes=notes).context.framework
    assert framework.attention == kernel
    assert ("rmsnorm" in framework.eager) == ("RMS kernel" not in notes)
    assert "swiglu" in framework.eager


def test_paddle_has_the_flash_attention_of_its_day_and_products_apart(tmp_path: Path) -> None:
    for notes, date, kernel in (
        ("parallel=flash_attention=True", "2023-06", "flash1"),
        ("parallel=flash_attention=True", "", "flash"),
        ("flash_attention=False", "", "unfused"),
    ):
        framework = mapped(tmp_path, framework="paddle", notes=notes, software_date=date).context.framework
        assert (framework.attention, framework.merged_products) == (kernel, False)


def test_frameworks_in_words(tmp_path: Path) -> None:
    for framework, name in (
        ("nanotron v0.5", "nanotron"),
        ("Megatron-DeepSpeed", "megatron-deepspeed"),
        ("Composer/llm-foundry FSDP", "fsdp"),
        ("Megatron-Bridge/NeMo", "nemo"),
        ("Megatron-LM main CI", "megatron-lm"),
        ("torchtitan", "torchtitan"),
        ("TorchTitan v0.2", "torchtitan"),
        ("InternEvo", "internevo"),
        ("PyTorch FSDP2", "fsdp"),
        ("HF Trainer", "fsdp"),
        ("HF accelerate + DeepSpeed", "deepspeed"),
        ("ROCm fork of Megatron-LM", "megatron-lm"),
        ("GPT-NeoX 2.0", "megatron-deepspeed"),
        ("Hetu-Galvatron", "megatron-lm"),
        ("Megatron Bridge", "nemo"),
        ("AXLearn", "maxtext"),
        ("MaxText (JAX, XLA, FSDP)", "maxtext"),
        ("MindFormers", "mindspeed"),
        ("XTuner", "deepspeed"),
        ("MS-Swift", "fsdp"),
    ):
        run = mapped(tmp_path, framework=framework)
        assert run.context.framework.name == name, framework
        assert "framework" not in run.filled
    other = mapped(tmp_path, framework="one of our own")
    assert (other.context.framework.name, "framework" in other.filled) == ("megatron-lm", True)


def test_releases_of_a_framework_differ_in_what_they_fuse(tmp_path: Path) -> None:
    first = mapped(tmp_path, framework="Megatron-LM v1.1.5 + DeepSpeed 3D", attention="").context.framework
    kernels = {}
    for date in ("2020-06", "2021-06", ""):
        later = mapped(tmp_path, framework="Megatron-DeepSpeed", attention="", software_date=date).context.framework
        kernels[date] = later.attention
    assert (first.name, first.attention) == (later.name, "unfused_half")
    assert kernels == {"2020-06": "unfused", "2021-06": "fused_softmax", "": "flash"}
    assert {"gelu", "residual_dropout"} <= set(first.eager) - set(later.eager)


@pytest.mark.parametrize(
    ("change", "kernel", "overlaps"),
    [
        ({"source": "SC21 paper, 2021"}, "fused_softmax", False),
        ({"source": "arXiv 2205.05198, table 5"}, "fused_softmax", False),
        ({"source": "a blog", "software_date": "2021-11-01"}, "fused_softmax", False),
        ({"source": "a blog of 2024-03"}, "flash2", True),
        ({"source": "a blog of 2025-03"}, "flash", True),
        ({"source": "a blog"}, "flash", True),
    ],
)
def test_kernels_are_those_of_the_time(tmp_path: Path, change: dict[str, str], kernel: str, overlaps: bool) -> None:
    profile = mapped(tmp_path, framework="Megatron-LM", attention="", **change).context.framework
    assert (profile.attention, profile.overlap_gradients > 0, profile.dropout) == (kernel, overlaps, not overlaps)


def test_an_unknown_trainer_runs_kernel_by_kernel(tmp_path: Path) -> None:
    unknown, known = (mapped(tmp_path, framework=name) for name in ("Ferrari-LLM 3", "Megatron-LM"))
    assert "framework" in unknown.filled and "framework" not in known.filled
    assert {"rmsnorm", "swiglu", "rope"} <= set(unknown.context.framework.eager) - set(known.context.framework.eager)
    assert not unknown.context.framework.fused_accumulation
    assert kind_of(unknown.context).framework not in framework_names()
    step_s = predict([unknown, known]).step_time_s
    assert step_s[0] > step_s[1]
    for device, fused in (("h100-sxm", False), ("tpu-v5p", True)):  # XLA fuses norms on TPUs alone
        compiled = mapped(tmp_path, framework="MaxText", device=device, gpus_per_node="", intra_link="").context
        assert ("rmsnorm" not in compiled.eager) is fused


def test_second_fully_sharded_copies_its_units(tmp_path: Path) -> None:
    first, second = (mapped(tmp_path, framework=name).context.framework for name in ("PyTorch FSDP", "PyTorch FSDP2"))
    assert (first.unit_parameters, second.unit_parameters) == ("flat", "each")
    assert second.unit_parameters == load_framework("torchtitan").unit_parameters
    assert replace(second, unit_parameters="flat", switches=first.switches) == first


def test_no_rule_about_frameworks_names_a_source() -> None:
    sources = {path.stem for path in MEASURED.glob("*.csv")} | {
        "korthikanti",
        "dlperf",
        "bigscience",
        "vtrain",
        "lucie",
    }
    text = (Path(vocabulary.__file__).parent / "data" / "frameworks.yaml").read_text(encoding="utf-8")
    patterns = [line.lower() for line in text.splitlines() if "match:" in line]
    trainers = {"internevo", "libai", "torchtitan", "llm_foundry", "galvatron_laer_moe", "megatron_bridge"}
    assert not [line for line in patterns for source in sources - trainers if source in line or "@ ." in line]


def test_switches_and_releases_of_a_row(tmp_path: Path) -> None:
    both = "overlap-grad-reduce=off,overlap-param-gather=off"
    off = mapped(tmp_path, framework="megatron-lm", switches=both).context.framework
    assert off.overlap_gradients == 0.0
    old = mapped(tmp_path, framework="megatron-lm", software_version="0.4").context.framework
    assert old.overlap_parameters == 0.0
    assert "no such switches" in reason(tmp_path, framework="megatron-lm", switches="compile")

    def fields(**change: str) -> tuple[object, ...]:
        profile = mapped(tmp_path, framework="megatron-lm", **change).context.framework
        return profile.version, profile.overlap_gradients, profile.overlap_parameters

    assert fields(switches="--overlap_grad_reduce=False") == fields(switches=both)
    assert fields(software_version="core_r0.10.0") == fields(software_version="0.10.0")
    assert fields(software_version="8aa4619") == fields()
    assert fields(software_version="NeMo 23.05") == fields(software_date="2023-05")


@pytest.mark.parametrize(
    ("framework", "profile", "zero", "attention"),
    [
        ("HF Trainer + DeepSpeed ZeRO-3", "deepspeed", 3, "flash2"),
        ("Primus TorchTitan", "torchtitan", 3, "flash2"),
        ("NVIDIA NeMo 24.07", "nemo", 1, "flash"),
        ("Colossal-AI", "megatron-lm", 0, "flash2"),
    ],
)
def test_what_the_name_of_a_framework_says(
    tmp_path: Path, framework: str, profile: str, zero: int, attention: str
) -> None:
    run = mapped(tmp_path, framework=framework, zero_stage="", tp="1", pp="1", dp="8")

    assert (run.context.framework.name, run.strategy.zero) == (profile, zero)
    assert run.context.framework.attention == attention


def test_training_in_fp16_dates_software_that_nobody_dates(tmp_path: Path) -> None:
    undated = mapped(tmp_path, framework="Megatron-LM", precision="fp16")
    dated = mapped(tmp_path, framework="Megatron-LM", precision="fp16", software_date="2022-06")

    assert undated.context.framework == dated.context.framework
    assert set(undated.filled) - set(dated.filled) == {"software_date"}
    assert mapped(tmp_path, framework="Megatron-LM").context.framework != dated.context.framework


def test_frameworks_choose_what_a_blank_cell_means(tmp_path: Path) -> None:
    blank = {"zero_stage": "", "sequence_parallel": "", "recompute": ""}
    bridge = mapped(tmp_path, framework="Megatron-Bridge", **blank).strategy
    assert (bridge.zero, bridge.sp, bridge.recompute) == (1, True, Recompute.NONE)
    plain = mapped(tmp_path, framework="Megatron-DeepSpeed", **blank).strategy
    assert (plain.zero, plain.sp) == (0, False)


SWEEP = {"source": "HF nanotron ultrascale bench", "framework": "nanotron v0.5", "sequence_parallel": "1"}


def test_no_job_number_tells_the_state_of_a_cluster(tmp_path: Path) -> None:
    first, later = (mapped(tmp_path, **SWEEP, notes=f"job={job}").context.framework for job in ("13502252", "14280994"))
    assert first == later == load_framework("nanotron")


BRIDGE = {"framework": "Megatron-Bridge/NeMo", "device": "gb200-nvl72", "gpus_per_node": "4", "precision": "mxfp8"}
OLD, NEW = "Megatron-Bridge 26.04.01 NeMo Container", "Megatron-Bridge 26.06 NeMo Container"


@pytest.mark.parametrize(
    ("change", "waits"),
    [
        ({"source": NEW}, False),
        ({"source": OLD}, True),
        ({"source": NEW, "precision": "fp8"}, True),
        ({"source": NEW, "device": "h100-sxm", "gpus_per_node": "8", "precision": "fp8"}, True),
    ],
)
def test_a_step_that_is_one_graph_waits_for_no_host(tmp_path: Path, change: dict[str, str], waits: bool) -> None:
    profile = mapped(tmp_path, **(BRIDGE | change)).context.framework
    assert (profile.host_expert_s > 0.0) == waits
    assert profile.fused_experts == (not waits)
    assert (profile.overlap_expert == 0.0) == waits
    same = load_framework("nemo" if waits else "nemo-blackwell")
    assert (profile.host_expert_s, profile.overlap_expert) == (same.host_expert_s, same.overlap_expert)
    assert profile.expert_wait_s == same.expert_wait_s


def test_a_test_of_muon_is_run_with_it_and_with_what_all_tests_have(tmp_path: Path) -> None:
    tests = {"framework": "Megatron-LM main CI", "source": "Megatron-LM functional test"}
    muon = mapped(tmp_path, **tests, model="gpt3_mcore_dist_muon_1node").context.framework
    adam = mapped(tmp_path, **tests, model="gpt3_mcore").context.framework
    assert (muon.optimizer, adam.optimizer) == ("muon", "adam")
    assert muon.overlap_gradients == adam.overlap_gradients == 0.0


def test_notes_name_how_tokens_are_dispatched(tmp_path: Path) -> None:
    def profile(notes: str) -> FrameworkProfile:
        return mapped(tmp_path, framework="Megatron-LM", notes=notes).context.framework

    assert profile("dispatcher=DeepEP; EDP=1").dispatches_once
    assert profile("dispatcher=DeepEP; EDP=1").overlap_expert == 0.0
    assert not profile("dispatcher=A2A; EDP=1").dispatches_once
    both = profile("dispatcher=A2A; +1f1b overlap")
    assert (both.dispatches_once, both.overlap_expert) == (False, 0.8)


def test_rank_0_of_the_nanotron_sweep_logs_its_own_stage(tmp_path: Path) -> None:
    notes = "peak mem column = reserved, as in the official figure"
    run = mapped(tmp_path, **SWEEP, notes=notes)
    assert (run.memory_kind, run.memory_of_first) == ("reserved", True)
    assert not mapped(tmp_path, notes=notes).memory_of_first


@pytest.mark.parametrize(
    ("change", "overlaps"),
    [
        ({"framework": "torchtitan+compile AsyncTP"}, True),
        ({"framework": "torchtitan + async TP, compile"}, True),
        ({"framework": "torchtitan+compile", "switches": "AsyncTP"}, True),
        ({"framework": "torchtitan+compile", "source": "benchmarks/asyncTP_llama3.md"}, False),
        ({"framework": "MindSpeed-LLM", "notes": "NPU column; mc2"}, True),
        ({"framework": "MindSpeed-LLM", "switches": "use-ascend-mc2"}, True),
        ({"framework": "MindSpeed-LLM"}, False),
    ],
)
def test_overlap_of_tensor_ranks_is_read_wherever_a_row_states_it(
    tmp_path: Path, change: dict[str, str], overlaps: bool
) -> None:
    profile = mapped(tmp_path, sequence_parallel="1", **change).context.framework
    assert (profile.overlap_tensor > 0) is overlaps


def test_experts_were_split_with_the_tensor_ranks_of_all_else(tmp_path: Path) -> None:
    experts = {"moe_experts": "8", "moe_topk": "2", "ep": "1", "tp": "4", "dp": "2", "pp": "1"}
    old, new = (mapped(tmp_path, framework=f"NeMo {release}", **experts).strategy.etp for release in ("24.09", "25.02"))
    assert (old, new) == (4, 1)


def test_adapters_are_read_from_a_column_or_from_words(tmp_path: Path) -> None:
    whole, stated, named = (mapped(tmp_path, **change) for change in ({}, {"lora": "8"}, {"source": "LoRA table"}))
    assert [layer.adapter_rank for layer in stated.context.model.layers] == [8] * len(stated.context.model.layers)
    assert "lora" in named.filled and "lora" not in stated.filled
    step_s = predict([whole, stated, named]).step_time_s
    assert step_s[1] < step_s[0] and step_s[2] < step_s[0]


def test_jax_is_read_by_its_date_and_kernels(tmp_path: Path) -> None:
    """Attention that nobody names is XLA's own in Paxml, and its tables of early 2024 recompute whole layers."""
    row = {"framework": "Paxml (JAX, XLA, FSDP)", "attention": "", "recompute": "", "tp": "1", "pp": "1", "dp": "8"}
    early, late = (mapped(tmp_path, source=f"a table of {date}", **row) for date in ("2024-04", "2024-12"))
    assert (early.strategy.recompute, late.strategy.recompute) == (Recompute.FULL, Recompute.NONE)
    assert early.context.framework.attention == "fused_softmax"
    assert mapped(tmp_path, **{**row, "attention": "flash"}).context.framework.attention == "flash"


def test_slices_of_a_pod_are_joined_by_the_networks_of_their_hosts(tmp_path: Path) -> None:
    row = {"device": "tpu-v4", "gpus": "128", "gpus_per_node": "", "nic_gbit_per_node": "100", "framework": "MaxText"}
    row |= {"dp": "128", "tp": "1", "pp": "1", "zero_stage": "3", "global_batch": "1280", "intra_link": ""}
    one, several = (mapped(tmp_path, notes=notes, **row).context.cluster for notes in ("", "2 slices of v4-128"))
    assert (one.scale_up_size, several.scale_up_size) == (128, 64)
    assert several.levels[-1].kind == "infiniband"
