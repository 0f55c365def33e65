"""``forerun improve`` as users meet it: models of the catalogue, runs, bad requests."""

import json

import pytest
import yaml
from forerun_machines import write_runs
from synthetic_runs import data_parallel

from forerun.search.cli import main

RESNET = ["resnet50", "--cluster", "aws-p3dn", "--gpus", "16", "--batch", "32"]
BERT = ["bert-large", *RESNET[1:], "--seq-len", "128", "--precision", "fp16", "--framework", "megatron-lm"]


def document(capsys, *arguments):
    assert main(["improve", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_model_by_its_operators(tmp_path, capsys):
    out = tmp_path / "plan.yaml"
    found = document(capsys, *RESNET, "--out", str(out))
    assert 0 < found["gain"] < 1 and found["operators"] == 176
    assert found["gradient_bytes"] == pytest.approx(4 * 25_557_032)
    plan = yaml.safe_load(out.read_text())
    names = [name for bucket in plan["buckets"] for name in bucket]
    assert len(names) == len(set(names)) and "conv1" in names
    assert all(len(run) > 1 for run in plan["fused"]) and ["batch_norm1", "relu1"] in plan["fused"]
    assert plan["predicted_step_time_s"]["plan"] <= plan["predicted_step_time_s"]["default"]
    ddp = plan["apply"]["ddp"]
    assert sum(ddp["bucket_cap_mb_list"]) * 2**20 == found["gradient_bytes"]  # exactly: DDP ends a bucket that is full
    assert len(ddp["bucket_cap_mb_list"]) == len(plan["buckets"])
    assert plan["apply"]["horovod"]["HOROVOD_FUSION_THRESHOLD"] == pytest.approx(plan["bucket_cap_mib"] * 2**20, abs=1)
    parts, clusters = plan["apply"]["byteps"]["partition_bytes"], plan["apply"]["xla"]["clusters"]
    assert {*parts} == {*names} and max(parts.values()) <= plan["apply"]["byteps"]["BYTEPS_PARTITION_BYTES"]
    assert clusters["batch_norm1"] == clusters["relu1"] and len(clusters) == sum(map(len, plan["fused"]))
    (groups,) = [one for one in found["what_if"] if one["name"] == "groups"]
    assert found["best_step_time_s"] <= groups["default_s"] and groups["what"].startswith(("2 ", "3 ", "4 ", "5 "))


@pytest.mark.slow
def test_mixed_precision_where_the_device_has_it(capsys):
    found = document(capsys, *RESNET, "--precision", "fp32")
    (mixed,) = [one for one in found["strategies"] if one["name"] == "mixed precision"]
    other = document(capsys, *RESNET, "--precision", "fp16")
    assert mixed["what"] == "fp16"  # V100 has no bf16
    assert mixed["saves_s"] == pytest.approx(found["default_step_time_s"] - other["default_step_time_s"])
    assert not [one for one in other["strategies"] if one["name"] == "mixed precision"]


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        ("vgg16", "ddp"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("vgg16", "horovod"), ("inception-v3", "ddp"))),
    ],
)
def test_the_default_is_beaten(capsys, model, rule):
    found = document(capsys, model, *RESNET[1:], "--bucket", rule)
    assert found["best_step_time_s"] < found["default_step_time_s"]
    without = document(capsys, model, *RESNET[1:], "--bucket", rule, "--no-fuse")
    assert not without["plan"]["fused"] and without["best_step_time_s"] >= found["best_step_time_s"]


@pytest.mark.slow
def test_a_transformer_and_other_strategies(capsys):
    training = ["--cluster", "aws-p3dn", "--gpus", "16", "--batch", "8", "--seq-len", "384", "--precision", "fp16"]
    training += ["--framework", "megatron-lm"]
    found = document(capsys, "bert-large", *training)
    assert found["best_step_time_s"] < found["default_step_time_s"] and found["strategies"]
    assert main(["improve", "bert-large", *training, "--strategy", "tp2 dp8 mbs16"]) == 0
    assert "Other strategies" in capsys.readouterr().out


@pytest.mark.slow  # a calibration
def test_a_calibrated_transformer(tmp_path, capsys):
    table, ours = write_runs(tmp_path / "runs.csv", faster=0.7), tmp_path / "ours.yaml"
    assert main(["calibrate", str(table), "--out", str(ours)]) == 0
    capsys.readouterr()
    words = "--cluster dgx-h100 --gpus 2 --batch 1 --seq-len 512 --framework megatron-lm"
    training = words.split()
    plain = document(capsys, "gpt3-6.7b", *training)
    found = document(capsys, "gpt3-6.7b", *training, "--calibration", str(ours))
    assert found["default_step_time_s"] > 1.1 * plain["default_step_time_s"]
    assert any("its constants count here" in note for note in found["notes"])


def test_servers_and_memory(capsys):
    found = document(capsys, "vgg16", *RESNET[1:], "--servers", "25Gbit/s", "--memory", "4GiB")
    assert max(found["plan"]["pieces"]) > 1
    assert {"memory", "tensor partition"} <= {change["name"] for change in found["changes"]}


def test_a_number_of_groups_is_the_default(capsys):
    found = document(capsys, "alexnet", *RESNET[1:], "--groups", "4")
    assert found["default_buckets"] == 4 and found["best_step_time_s"] <= found["default_step_time_s"]
    assert main(["improve", *RESNET, "--groups", "1000"]) == 2
    assert "107 gradients to group, but got 1000" in capsys.readouterr().err
    assert main(["improve", *RESNET, "--groups", "4", "--bucket", "ddp"]) == 2


@pytest.mark.slow
def test_recomputing_counts_once_in_every_answer(capsys):
    found = document(
        capsys, "resnet50", "--cluster", "dgx1-v100", "--gpus", "16", "--batch", "256", "--memory", "14GiB"
    )
    (groups,) = [one for one in found["what_if"] if one["name"] == "groups"]
    (plain,) = [one for one in found["what_if"] if one["name"] == "as it is"]
    assert plain["best_s"] <= groups["default_s"] <= plain["default_s"] * 1.02


def test_a_run(tmp_path, capsys):
    data_parallel(tmp_path, ranks=3, steps=4, buckets=6, backward_s=1e-3, reduce_s=2e-3, slow=(1, 0, 1.3))
    found = document(capsys, "--traces", str(tmp_path))
    # The slow rank asks after 6.5 ms, then six reductions of 2 ms: 18.5 ms. With 1 ms its last one, asked for after
    # 13 ms, ends after 14.
    assert found["default_buckets"] == 6
    assert found["default_step_time_s"] == pytest.approx(found["measured_step_time_s"], rel=0.06)
    gains = {one["name"]: one["gain_s"] for one in found["run_what_if"]}
    assert gains["faster link"] == pytest.approx(4.5e-3, rel=0.05) and gains["no straggler"] > 0
    assert gains["free messages"] >= gains["faster link"]
    (free,) = [one for one in found["run_what_if"] if one["name"] == "free messages"]
    assert found["free_messages_step_time_s"] == free["step_s"]
    assert main(["improve", "--traces", str(tmp_path)]) == 0
    assert "What if, on the replayed run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        ([], "give one of the two", 2),
        (["resnet50"], "add --cluster, --gpus, --batch", 2),
        ([*RESNET, "--traces", "x"], "give one of the two", 2),
        (["--traces", "/nowhere"], "does not exist", 2),
        (["bert-large", *RESNET[1:]], "--seq-len", 2),
        ([*RESNET[:-3], "1", "--batch", "1"], "2 or more", 2),
        ([*RESNET, "--bucket", "nccl"], "unknown rule of buckets", 2),
        ([*RESNET, "--servers", "1e-300B/s"], "a rate is 0 or", 2),
        ([*RESNET, "--servers", "25"], "write the unit too", 2),
        ([*RESNET, "--memory", "16"], "write the unit too", 2),
        ([*RESNET, "--seq-len", "8"], "--seq-len is for transformers", 2),
        (["--traces", "/nowhere", "--batch", "8"], "--batch belongs to a MODEL", 2),
        ([*RESNET, "--strategy", "dp16"], "for transformers", 2),
        ([*RESNET, "--calibration", "x.yaml"], "x.yaml", 2),
        (["--traces", "/nowhere", "--profile", "x.yaml"], "--profile belongs to a MODEL", 2),
        ([*RESNET, "--memory", "1MiB"], "smaller batch", 3),
        (["resnet51", *RESNET[1:]], "resnet", 2),
        ([*BERT, "--strategy", "pp2 dp8 mbs1"], "pp1", 2),
        ([*BERT, "--strategy", "tp16 dp1 mbs1"], "dp2 or more", 2),
    ],
)
def test_bad_requests(capsys, arguments, words, code):
    assert main(["improve", *arguments]) == code
    assert words in capsys.readouterr().err


def test_a_run_without_gradients_is_told(tmp_path, capsys):
    data_parallel(tmp_path, ranks=2, steps=2, buckets=0)
    assert main(["improve", "--traces", str(tmp_path)]) == 2
    assert "backward pass" in capsys.readouterr().err


@pytest.mark.slow  # a search of fusions
def test_measured_costs_of_fused_operators(tmp_path, capsys):
    costs = tmp_path / "fused.yaml"
    before = document(capsys, *RESNET)
    costs.write_text("fused:\n- {operators: [conv1, batch_norm1], forward: 10us, backward: 10us}\n")
    after = document(capsys, *RESNET, "--fused", str(costs))
    assert ["conv1", "batch_norm1", "relu1"] in after["plan"]["fused"]
    assert after["best_step_time_s"] < before["best_step_time_s"] - 1e-3
    costs.write_text("fused:\n- {operators: [batch_norm1, relu1], forward: 1s, backward: 1s}\n")
    slower = document(capsys, *RESNET, "--fused", str(costs))
    assert ["batch_norm1", "relu1"] not in slower["plan"]["fused"]
    for text, words in (
        ("fused: [{operators: [conv1, conv2], forward: 1ms, backward: 1ms}]", "conv2 follows pool1"),
        ("fused: [{operators: [conv1, conv999], forward: 1ms, backward: 1ms}]", "unknown operator"),
        ("fused: [{operators: [conv1], forward: 1ms, backward: 1ms}]", "operators"),
        ("fused: [{operators: [conv1, batch_norm1], forward: soon, backward: 1ms}]", "soon"),
        ("what: 1", "fused"),
    ):
        costs.write_text(text)
        assert main(["improve", *RESNET, "--fused", str(costs)]) == 2
        assert words in capsys.readouterr().err


def test_another_split_where_the_link_is_slow(tmp_path, capsys):
    slow = tmp_path / "slow.yaml"
    slow.write_text(
        "device: v100-sxm2-32\ndevices_per_node: 8\nmax_devices: 16\n"
        "scale_up: {kind: nvlink-mesh, mesh: cube}\nhost: {sockets: 2, socket_rate: 10GB/s, memory: 768GiB}\n"
        "network: {kind: infiniband, nics_per_node: 1, nic_rate: 25Gb/s}\nsource: a test\n"
    )
    found = document(capsys, "vgg16", "--cluster", str(slow), "--gpus", "16", "--batch", "32")
    assert found["strategies"] and all(one["saves_s"] > 0 for one in found["strategies"])


@pytest.mark.parametrize(("strategy", "told"), [("dp16 mbs1", True), ("tp8 dp2 mbs1 zero1", False)])
@pytest.mark.slow
def test_a_strategy_that_does_not_fit_is_told(capsys, strategy, told):
    words = ["improve", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "16", "--batch", "1", "--seq-len", "512"]
    assert main([*words, "--strategy", strategy]) == 0
    assert ("does not fit" in capsys.readouterr().out) == told
