"""Rows of measured runs as runs: what is stated, what is filled in, what is skipped and why."""

from dataclasses import replace
from pathlib import Path

import pytest
from forerun_measured import mapped, reason, write_runs

from forerun.search.measured.validate import RULES, load_runs, predict
from forerun.search.measured.validate.intervals import intervals_of
from forerun.search.measured.validate.spelling import understood
from forerun.simulator import score
from forerun.simulator.costs import device_efficiency
from forerun.spaces.models.model import MixtureOfExperts
from forerun.spaces.strategies import Recompute, Schedule, Split, layers_per_virtual_stage, table_of


def test_a_row_that_states_everything_needs_only_the_family(tmp_path: Path) -> None:
    run = mapped(tmp_path)
    assert run.filled == ("family",)
    assert str(run.strategy) == "tp2 pp2 dp2 mbs1"
    assert (run.step_time_s, run.peak_memory_bytes, run.memory_kind) == (2.0, 10 * 2.0**30, "allocated")
    assert run.context.model.layer_count == 12
    assert run.context.model.tied_embeddings
    assert run.file == "lab"


def test_an_optimizer_shared_by_a_part_of_the_replicas(tmp_path: Path) -> None:
    shared = {"tp": "1", "pp": "1", "dp": "8", "zero_stage": "1"}

    assert str(mapped(tmp_path, notes="zero1 group=2", **shared).strategy) == "tp1 pp1 dp8 mbs1 zero1 shard=2"
    assert not mapped(tmp_path, notes="optimizer sharded over 8 ranks", **shared).strategy.shard
    assert not mapped(tmp_path, notes="zero1 group=2", **{**shared, "zero_stage": "0"}).strategy.shard


@pytest.mark.parametrize(
    "notes", ["layout and batch from a later configuration (ASSUMED)", "expert load is IMBALANCED by the router"]
)
def test_an_assumed_strategy_is_predicted_with_a_wider_interval_and_is_no_evidence(tmp_path: Path, notes: str) -> None:
    table = write_runs(tmp_path / "runs.csv", {}, {"notes": notes}, {"notes": "world size assumed 8"})
    assert [row.reason for row in load_runs([table]).skipped] in ([RULES["strategy"]], [RULES["imbalance"]])

    intervals = intervals_of(predict(load_runs([table], assumed=True).runs))
    stated, assumed, other = intervals.high_s / intervals.low_s
    assert assumed > 1.3 * stated and other == stated


def test_runs_that_differ_in_strategy_only_share_a_context(tmp_path: Path) -> None:
    runs = load_runs([write_runs(tmp_path / "runs.csv", {}, {"tp": "4", "pp": "1"}, {"global_batch": "128"})]).runs
    assert runs[0].context is runs[1].context
    assert runs[0].context is not runs[2].context


def test_rows_that_repeat_words_share_them_and_record_the_same_rules(tmp_path: Path) -> None:
    """Tables of hundreds of thousands of rows are held in memory."""
    unknown = {"framework": "ours", "tp": "4", "pp": "1"}
    first, second, third = load_runs([write_runs(tmp_path / "runs.csv", unknown, unknown, {})]).runs

    assert first.context.framework is second.context.framework
    assert first.strategy is second.strategy
    assert first.filled == second.filled
    assert "framework" in second.filled and "framework" not in third.filled
    assert all(first.cells[name] is third.cells[name] for name in ("device", "gpus", "model"))
    assert first.cells["switches"] == "" and "switches" in first.cells and "unheard" not in first.cells


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"gpus_per_node": ""}, "gpus_per_node"),
        ({"gpus": "16", "dp": "4"}, "nic"),
        ({"gpus": "16", "dp": "4"}, "network"),
        ({"kv_heads": ""}, "kv_heads"),
        ({"ffn_hidden": ""}, "ffn_hidden"),
        ({"gated_mlp": ""}, "gated_mlp"),
        ({"vocab": "50257"}, "vocab_padding"),
        ({"cp": ""}, "cp"),
        ({"ep": ""}, "ep"),
        ({"virtual_pp": ""}, "virtual_pp"),
        ({"schedule": ""}, "schedule"),
        ({"zero_stage": ""}, "zero_stage"),
        ({"sequence_parallel": ""}, "sequence_parallel"),
        ({"micro_batch": ""}, "micro_batch"),
        ({"recompute": ""}, "recompute"),
        ({"precision": ""}, "precision"),
        ({"heads": "", "kv_heads": ""}, "heads"),
        ({"model": "gpt-oss-20b", "hidden": "2880", "layers": "12"}, "truncated"),
        ({"layers": "13"}, "split"),
        ({"notes": ""}, "memory_kind"),
        ({"moe_experts": "8", "moe_topk": "2"}, "moe_imbalance"),
        ({"model": "gpt3_mcore_x", "vocab": ""}, "vocab"),
        ({"vocab": ""}, "vocab"),
        ({"device": "A100"}, "device"),
        ({"gpus": ""}, "gpus"),
        ({"tp": ""}, "degree"),
        ({"recompute": "full", "micro_batch": "8", "notes": "FSDP_sAC_h100"}, "recompute_layers"),
    ],
)
def test_what_is_filled_in_is_recorded(tmp_path: Path, change: dict[str, str], code: str) -> None:
    assert code in mapped(tmp_path, **change).filled
    assert code in RULES


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"device": ""}, "device not stated"),
        ({"device": "v100-sxm2-16+t4"}, "heterogeneous cluster"),
        ({"device": "z80"}, "unknown device z80"),
        ({"layers": ""}, "missing shape: layers"),
        ({"precision": "int3"}, "unknown precision int3"),
        ({"model": "ResNet-101"}, "not a transformer"),
        ({"tp": "", "dp": ""}, "missing strategy: dp or tp"),
        ({"tp": "", "gpus": ""}, "missing gpus"),
        ({"tp": "4"}, "dp*tp*pp*cp is not gpus"),
        ({"ep": "FSEP(32)"}, "ep is not a number"),
        ({"ep": "3"}, "ep does not divide dp*tp*cp"),
        ({"micro_batch": "14.997"}, "micro_batch is not a whole number"),
        ({"micro_batch": "64"}, "dp*micro_batch is more than global_batch"),
        ({"recompute": "except_last"}, "unknown recompute except_last"),
        ({"schedule": "vocab-3"}, "unknown schedule vocab-3"),
        ({"outcome": "failed", "peak_mem_gib": ""}, "run failed for another reason than memory"),
        ({"step_time_s": "", "peak_mem_gib": ""}, "no step time"),
        ({"step_time_s": "0"}, "step time of zero"),
        ({"seq_len": "0"}, "missing shape: seq_len"),
        ({"notes": "act_cpu_offload=True"}, "offload to the host"),
        ({"step_time_s": "0.001"}, "faster than the devices' peak"),
        ({"device": "v100-sxm2-32"}, "v100-sxm2-32 has no bf16"),
        (
            {"notes": "zero1 group=3", "tp": "1", "dp": "4", "zero_stage": "1"},
            "optimizer sharded over ranks that do not divide the replicas",
        ),
        ({"layers": "1", "pp": "4", "dp": "1"}, "more stages than layers"),
    ],
)
def test_what_cannot_be_expressed_is_skipped_with_a_reason(tmp_path: Path, change: dict[str, str], text: str) -> None:
    assert reason(tmp_path, **change) == text


def test_virtual_stages_make_the_schedule_interleaved(tmp_path: Path) -> None:
    strategy = mapped(tmp_path, schedule="", virtual_pp="3").strategy
    assert (strategy.schedule, strategy.vpp) == (Schedule.INTERLEAVED, 3)
    alone = mapped(tmp_path, schedule="", virtual_pp="3", pp="1", dp="4").strategy
    assert (alone.schedule, alone.vpp) == (Schedule.ONE_F_ONE_B, 1)


def test_a_schedule_of_the_vocabulary_is_1f1b_with_a_part_of_it_on_every_stage(tmp_path: Path) -> None:
    for text, way in (
        ("vocab-2", "vocab-2"),
        ("interlaced: interlaced vocab pipeline", "interlaced"),
        ("1f1b", "ends"),
    ):
        run = mapped(tmp_path, schedule=text)
        assert run.strategy.schedule == Schedule.ONE_F_ONE_B
        assert run.context.framework.vocabulary == way


def test_as_few_layers_are_recomputed_as_fit_where_their_share_is_not_stated(tmp_path: Path) -> None:
    row = {"framework": "PyTorch FSDP2", "recompute": "full", "global_batch": "768", "micro_batch": "96", "pp": "1"}
    row |= {"tp": "1", "dp": "8", "notes": "logs/FSDP_sAC_7B.out"}
    run = mapped(tmp_path, **row)
    some = run.strategy.recompute_layers
    assert 1 < some < run.context.model.layer_count
    fewer = replace(run.strategy, recompute_layers=some - 1)
    assert score(run.context, table_of([run.strategy, fewer])).fits.tolist() == [True, False]
    assert mapped(tmp_path, **row | {"notes": "logs/FSDP_7B.out"}).strategy.recompute_layers == 0


def test_uneven_layers_are_dealt_by_the_stated_rule(tmp_path: Path) -> None:
    ends = mapped(tmp_path, layers="14", pp="4", dp="1").strategy
    assert ends.split == Split.LIGHT_ENDS
    assert mapped(tmp_path, layers="15", pp="4", dp="1").strategy.split == Split.LIGHT_LAST
    assert mapped(tmp_path, layers="17", pp="4", dp="1").strategy.split == Split.BALANCED
    assert mapped(tmp_path, layers="16", pp="4", dp="1").strategy.split == Split.EVEN


def test_libai_takes_layers_off_its_last_stage(tmp_path: Path) -> None:
    deep = {"layers": "24", "tp": "1", "pp": "4", "framework": "LiBai"}

    assert mapped(tmp_path, **deep).strategy.layers_per_stage == (6, 7, 7, 4)
    assert mapped(tmp_path, **deep | {"framework": "Megatron"}).strategy.layers_per_stage is None


@pytest.mark.parametrize(("pp", "vpp", "first", "last"), [("4", "4", 4, 1), ("8", "4", 1, 0), ("16", "1", 4, 1)])
def test_a_prediction_block_and_its_head_are_layers_of_the_last_stage(
    tmp_path: Path, pp: str, vpp: str, first: int, last: int
) -> None:
    row = {"model": "DeepSeekV3", "layers": "61", "framework": "Megatron-Bridge/NeMo", "moe_experts": "256"}
    row |= {"moe_topk": "8", "heads": "128", "kv_heads": "128", "hidden": "7168", "ffn_hidden": "18432"}
    row |= {"vocab": "129280", "gated_mlp": "1", "gpus": "64", "tp": "1", "dp": str(64 // int(pp)), "pp": pp}
    run = mapped(tmp_path, **row, virtual_pp=vpp, schedule="interleaved" if vpp != "1" else "1f1b")
    assert run.strategy.split == Split.LIGHT_MTP
    counts = layers_per_virtual_stage(61, int(pp) * int(vpp), run.strategy.split)
    assert (counts[0], counts[-1], sum(counts)) == (first, last, 61)
    assert len(set(counts[1:-1])) == 1


@pytest.mark.parametrize(
    ("notes", "stages"),
    [
        ("layers on last stage=0", (6, 6, 0)),
        ("layers on last stage=1", (5, 6, 1)),
        ("partition=[0, 8, 12, 18]", (6, 4, 2)),  # two modules stand before the layers and four behind
        ("layers_per_stage=[6, 4, 2]", (6, 4, 2)),
    ],
)
def test_notes_name_the_layers_of_stages(tmp_path: Path, notes: str, stages: tuple[int, ...]) -> None:
    assert mapped(tmp_path, notes=notes, pp="3", tp="1", dp="1", gpus="3").strategy.layers_per_stage == stages


def test_embedding_and_head_may_have_stages_of_their_own(tmp_path: Path) -> None:
    strategy = mapped(tmp_path, layers="2", pp="4", dp="1").strategy
    assert (strategy.split, strategy.layers_per_stage) == (Split.LIGHT_ENDS, None)


def test_the_notes_name_the_network(tmp_path: Path) -> None:
    run = mapped(tmp_path, gpus="16", dp="4", notes="network=roce", source="bigscience")
    assert run.context.cluster.levels[-1].kind == "roce"
    assert "network" not in run.filled


def test_modules_that_an_ablation_recomputes_are_read(tmp_path: Path) -> None:
    for name, kind in (("mlp_plus_core_attn", "core_attn+mlp"), ("core_attn", "selective"), ("more_pp", "selective")):
        run = mapped(tmp_path, recompute="selective", notes=f"name={name}; status=; measurement=rank 0")
        assert f"recompute={kind}" in str(run.strategy)
    assert "recompute" not in str(mapped(tmp_path, recompute="none", notes="name=mlp; status=").strategy)


def test_fp32_held_against_the_tf32_peak_is_tf32(tmp_path: Path) -> None:
    assert mapped(tmp_path, precision="fp32", notes="(theoryflops=495T)").context.workload.precision == "tf32"
    assert mapped(tmp_path, precision="fp32").context.workload.precision == "fp32"


def test_the_kind_of_peak_memory_comes_from_the_notes(tmp_path: Path) -> None:
    for notes, kind in (
        ("peak mem column = reserved, as in the official figure", "reserved"),
        ("mem column is GB from nvidia-smi", "device"),
        ("max reserved=29.449 GiB", "allocated"),
    ):
        assert mapped(tmp_path, notes=notes).memory_kind == kind


def test_experts_come_from_columns_or_from_the_catalogue(tmp_path: Path) -> None:
    own = mapped(tmp_path, moe_experts="8", moe_topk="2").context.model.layers[0].mlp
    assert isinstance(own, MixtureOfExperts)
    assert (own.experts, own.expert_hidden) == (8, 4096)
    shape = {"layers": "94", "hidden": "4096", "ffn_hidden": "12288", "gated_mlp": "1", "step_time_s": "1000"}
    known = mapped(tmp_path, model="Qwen3_235B_a22B", **shape)
    assert "catalogue" in known.filled
    mlp = known.context.model.layers[0].mlp
    assert isinstance(mlp, MixtureOfExperts)
    assert mlp.expert_hidden == 1536  # Qwen3-235B-A22B config.json: moe_intermediate_size
    less = mapped(tmp_path, model="Qwen3_235B_a22B", **(shape | {"layers": "90", "pp": "1", "dp": "4"}))
    assert less.context.model.layer_count == 90 and "truncated" in less.filled
    assert reason(tmp_path, model="Qwen3_235B_a22B", **(shape | {"hidden": "96"})).startswith("hidden contradicts")


@pytest.mark.parametrize(
    ("change", "width"),
    [
        ({"moe_experts": "8", "moe_topk": "2"}, 4096),
        ({"moe_experts": "64", "moe_topk": "4"}, 1024),  # as wide as the dense MLP together
        ({"moe_experts": "64", "moe_topk": "4", "ffn_hidden": "1024"}, 1024),  # an expert's own
        ({"moe_experts": "64", "moe_topk": "4", "expert_hidden": "704", "shared_hidden": "1408"}, 704),
    ],
)
def test_width_of_experts(tmp_path: Path, change: dict[str, str], width: int) -> None:
    run = mapped(tmp_path, **change)
    mlp = run.context.model.layers[0].mlp
    assert isinstance(mlp, MixtureOfExperts)
    assert (mlp.expert_hidden, mlp.shared_hidden) == (width, int(change.get("shared_hidden", 0)))
    assert ("expert_hidden" in run.filled) == ("expert_hidden" not in change)


def test_a_published_pattern_swallows_no_other_model(tmp_path: Path) -> None:
    assert mapped(tmp_path, model="Nemotron-340B").context.model.layer_count == 12
    assert reason(tmp_path, model="Nemotron-3-Nano").endswith("contradicts the published model")


def test_a_blank_precision_is_that_of_published_recipes(tmp_path: Path) -> None:
    def precision(**change: str) -> str:
        return mapped(tmp_path, precision="", **change).context.workload.precision

    h100 = {"device": "h100-sxm", "framework": "Megatron-Bridge"}
    assert (precision(), precision(device="v100-sxm2-16"), precision(**h100)) == ("bf16", "fp16", "fp8")
    assert precision(**h100, moe_experts="8", moe_topk="2") == "bf16"


def test_a_lower_power_limit_slows_products(tmp_path: Path) -> None:
    full, low = (
        mapped(tmp_path, device="h100-sxm", power_limit_w=watts).context.cluster.device for watts in ("", "500")
    )
    clocks = [device_efficiency(device).sustained_clock["half"] for device in (full, low)]
    assert clocks[1] == pytest.approx(clocks[0] * (500 / 700) ** 0.5)


def test_names_tell_hybrids_from_models_that_sound_alike(tmp_path: Path) -> None:
    shape = {"layers": "", "hidden": "", "ffn_hidden": "", "heads": "", "vocab": "", "step_time_s": "1000"}
    hybrid = mapped(tmp_path, model="Nemotron_3_Nano", **shape).context.model
    assert hybrid.name == "nemotron3-nano-30b-a3b"
    assert hybrid.layers[0].mlp is None
    assert mapped(tmp_path, model="Nemotron-3-8B").context.model.layer_count == 12  # by its columns
    assert reason(tmp_path, model="Nemotron_3_Ultra", **shape) == "the model's shape is not in the catalogue"


@pytest.mark.parametrize(
    ("device", "gpus", "torus"), [("tpu-v4", 64, (4, 4, 4)), ("tpu-v5e", 64, (8, 8)), ("tpu-v5p", 8, (2, 2, 2))]
)
def test_a_slice_of_a_pod_is_one_torus(tmp_path: Path, device: str, gpus: int, torus: tuple[int, ...]) -> None:
    change = {"device": device, "gpus": str(gpus), "gpus_per_node": "", "dp": str(gpus // 4), "intra_link": ""}
    spec = mapped(tmp_path, **change).context.cluster.spec
    assert spec is not None
    assert spec.scale_up is not None
    assert (spec.devices_per_node, spec.scale_up.size, spec.scale_up.torus) == (4, gpus, torus)


def test_a_row_that_contradicts_itself_costs_no_other(tmp_path: Path) -> None:
    odd = {"device": "gb200-nvl72", "gpus_per_node": "5"}
    result = load_runs([write_runs(tmp_path / "runs.csv", {}, odd, {})])
    assert len(result.runs) == 2
    assert "scale-up size" in result.skipped[0].reason


MIXTURE = {"moe_experts": "8", "moe_topk": "2", "tp": "2", "dp": "2", "pp": "2", "ep": "2"}


@pytest.mark.parametrize(
    ("framework", "notes", "model", "etp"),
    [
        ("Megatron-LM", "", "ours", 2),
        ("Megatron-LM", "EDP=2 ETP=1", "ours", 1),
        ("Megatron-LM main CI", "", "ours_ep2_etp1_te", 1),
        ("Megatron-Bridge/NeMo", "", "ours", 1),
        ("Megatron-Bridge/NeMo", "", "ours_ep2_etp2", 2),
    ],
)
def test_tensor_degree_of_experts(tmp_path: Path, framework: str, notes: str, model: str, etp: int) -> None:
    run = mapped(tmp_path, **MIXTURE, framework=framework, notes=notes, model=model)
    assert run.strategy.etp == etp
    assert ("etp" in run.filled) == ("etp" not in model and not notes)


def test_experts_are_not_cut_into_more_parts_than_there_are_devices(tmp_path: Path) -> None:
    wide = MIXTURE | {"framework": "Megatron-LM", "ep": "4"}
    assert mapped(tmp_path, **wide).strategy.etp == 1
    assert reason(tmp_path, **wide, notes="ETP=2") == "ep*etp does not divide dp*tp*cp"
    assert mapped(tmp_path, framework="Megatron-LM").strategy.etp == 1  # no experts


@pytest.mark.parametrize(
    "change",
    [
        {"device": "NVIDIA A100-SXM4-80GB", "precision": "bfloat16", "recompute": "off", "schedule": "PipeDream-Flush"},
        {"gpus": "1x8", "seq_len": "1k", "vocab": "51,200", "zero_stage": "none", "sequence_parallel": "False"},
        {
            "dp": "n/a",
            "ep": "1",
            "gated_mlp": "no",
            "outcome": "OK",
            "attention": "-",
            "framework": "NVIDIA Megatron-LM",
        },
    ],
)
def test_words_of_others_are_read_as_the_schemas(tmp_path: Path, change: dict[str, str]) -> None:
    stated, spelled = mapped(tmp_path), mapped(tmp_path, **change)

    assert spelled.context == stated.context
    assert spelled.strategy == stated.strategy
    assert set(spelled.filled) - {"degree"} == set(stated.filled)


def test_who_published_a_model_is_no_part_of_its_name(tmp_path: Path) -> None:
    shape = {"layers": "32", "hidden": "4096", "step_time_s": "99"}

    assert mapped(tmp_path, model="mistralai/Mixtral-8x7B-v0.1", **shape).context.model.name == "mixtral-8x7b"


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("H100 SXM5 80GB", "h100-sxm"),
        ("H100 PCIe", "h100-pcie"),
        ("GB200 NVL72", "gb200-nvl72"),
        ("MI300X OAM", "mi300x"),
        ("TPU v5p-256", "tpu-v5p"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16"),
    ],
)
def test_trade_names_of_devices(text: str, device: str) -> None:
    assert understood("device", text) == (device, None)


@pytest.mark.parametrize(
    ("column", "text", "read"),
    [
        ("device", "A100-SXM4-80GB 400W", "a100-sxm4-80"),
        ("device", "V100 PCIe 16GB", "v100-pcie-16"),
        ("device", "V100-SXM2-32GB, 16 GPUs", "v100-sxm2-32"),
        ("device", "A100 64GB", "a100-sxm-64"),
        ("device", "A100-SXM4-80GB x 64", "a100-sxm4-80"),
        ("device", "NVIDIA A100-64", "a100-sxm-64"),
        ("device", "NVIDIA H20-3e", "h20-3e"),
        ("device", "AMD Instinct MI300A", "mi300a"),
        ("device", "Cloud TPU v3-32", "tpu-v3"),
        ("device", "trn1.32xlarge", "trainium1"),
        ("device", "Intel Data Center GPU Max 1550", "max-1550"),
        ("device", "NVIDIA A10", "a10"),
        ("device", "A10", "A10"),
        ("precision", "bf16 (no fp8)", "bf16 (no fp8)"),
        ("recompute", "checkpointing off", "none"),
        ("recompute", "none (no checkpoint)", "none (no checkpoint)"),
        ("zero_stage", "non-distributed optimizer", "non-distributed optimizer"),
        ("zero_stage", "FSDP NO_SHARD", "0"),
        ("schedule", "1F1B (not interleaved)", "1f1b"),
        ("schedule", "zb-h2", "zb-h2"),
        ("schedule", "PipeDream-2BW", "PipeDream-2BW"),
        ("attention", "flash-attn 2.1", "flash2"),
        ("attention", "no flash", "no flash"),
        ("attention", "SDPA (math)", "unfused"),
        ("seq_len", "0k", "0k"),
        ("gpus", f"{'9' * 5000}x8", f"{'9' * 5000}x8"),
    ],
)
def test_what_a_cell_denies_or_only_resembles_is_not_read_into_it(column: str, text: str, read: str) -> None:
    assert understood(column, text)[0] == read


def test_a_dense_run_that_would_not_fit_had_recompute(tmp_path: Path) -> None:
    large = {"recompute": "", "peak_mem_gib": "", "layers": "96", "seq_len": "8192", "step_time_s": "90"}

    assert mapped(tmp_path, **large).strategy.recompute == Recompute.NONE
    assert mapped(tmp_path, **large, micro_batch="8").strategy.recompute == Recompute.FULL
    assert mapped(tmp_path, **large, micro_batch="8", device="gh200-96").strategy.recompute == Recompute.NONE
    assert "recompute" in mapped(tmp_path, **large, micro_batch="8").filled
