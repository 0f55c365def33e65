"""No setting of a launch script that changes speed or memory ends among the harmless ones.

Twenty scripts as people write them: what they set beyond the degrees, what of it is harmless by Megatron-LM's code.
"""

import pytest

from forerun.search.formats import import_texts
from forerun.spaces.documents.package_data import package_yaml

COMMON = (
    "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
    "--num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 "
    "--global-batch-size 256 --tensor-model-parallel-size 2 --bf16 "
)
EXPERTS = "--num-experts 64 --moe-router-topk 6 --expert-model-parallel-size 8 "
HARMLESS = (
    "--lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 --seed 1234 "
    "--train-iters 50000 --log-interval 1 --log-throughput --save ckpt --load ckpt --split 99,1,0 --data-path d "
)
SCRIPTS = {
    "llama on H100 in eight bit": "--fp8-format hybrid --fp8-amax-history-len 1024 --fp8-param-gather",
    "buckets": "--ddp-num-buckets 8 --ddp-average-in-collective --overlap-param-gather-with-optimizer-step",
    "states in few bits": "--main-grads-dtype bf16 --use-precision-aware-optimizer --exp-avg-dtype bf16",
    "states on the host": "--optimizer-cpu-offload --optimizer-offload-fraction 0.5 --overlap-cpu-optimizer-d2h-h2d",
    "FSDP": "--use-megatron-fsdp --init-model-with-meta-device --fsdp-double-buffer",
    "pipeline": "--microbatch-group-size-per-virtual-pipeline-stage 4 --defer-embedding-wgrad-compute",
    "overlap off and on": "--tp-comm-overlap --disable-tp-comm-split-ag --no-async-tensor-model-parallel-allreduce",
    "old kernels": "--no-masked-softmax-fusion --no-bias-dropout-fusion --no-persist-layer-norm",
    "older still": "--transformer-impl local --no-rope-fusion --use-legacy-models",
    "GPT-2 with dropout": "--hidden-dropout 0.1 --attention-dropout 0.1",
    "graphs": "--cuda-graph-impl local --cuda-graph-scope full_iteration --te-rng-tracker --manual-gc",
    "debugging": "--profile --timing-log-level 2 --log-straggler --log-params-norm --deterministic-mode",
    "checkpoints often": "--save-interval 20 --async-save --eval-interval 100",
    "packed sequences": "--variable-seq-lengths --reset-position-ids --reset-attention-mask --num-workers 8",
    "growing batch": "--rampup-batch-size 16 16 1000000 --decrease-batch-size-if-needed",
    "activations away": "--distribute-saved-activations --cpu-offloading-num-layers 4",
    "long context": "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2",
    "experts, DeepEP": EXPERTS
    + "--moe-token-dispatcher-type flex --moe-deepep-num-sms 24 --moe-permute-fusion --moe-router-fusion",
    "experts, unbalanced": EXPERTS + "--moe-router-load-balancing-type none",
    "experts, dropped": EXPERTS
    + "--moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity --moe-token-drop-policy probs",
    "experts in groups": EXPERTS
    + "--moe-router-num-groups 8 --moe-router-group-topk 4 --moe-shared-expert-overlap --moe-use-legacy-grouped-gemm "
    "--delay-wgrad-compute --moe-router-padding-for-quantization",
}


NEWER = (
    "--no-tp-comm-split-rs --fp32-residual-connection --flash-attention-version 3 --no-fp8-wgrad --sft "
    "--high-priority-a2a-comm-stream --moe-flex-dispatcher-num-sms 24 --disable-mamba-mem-eff-path "
    "--create-all-gather-group "
    "--tensor-parallel-num-weight-shards 2 --optimizer-cuda-graph --train-sync-interval 1 --save-wgrads-interval 10 "
    "--use-grouped-gemm-for-shared-expert --yaml-cfg more.yaml --use-mp-args-from-checkpoint-args"
)
SCRIPTS["arguments of 0.19"] = NEWER


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_changes_speed_is_not_harmless(name: str) -> None:
    found = import_texts({"launch.sh": f"{COMMON}{HARMLESS}{SCRIPTS[name]}\n"})
    changing = {word.removeprefix("--").replace("-", "_") for word in SCRIPTS[name].split() if word.startswith("--")}
    kept = {key.removeprefix("--").replace("-", "_") for key in found.other}
    assert not changing & kept
    harmless = {word.removeprefix("--").replace("-", "_") for word in HARMLESS.split() if word.startswith("--")}
    assert harmless <= kept
    assert not found.unknown


def test_packing_that_is_off_is_harmless() -> None:
    text, names = OTHERS["swift.sh"]
    found = import_texts({"swift.sh": text.replace("true", "false")})
    assert {*names.split()} <= found.other.keys()


def test_dropout_of_zero_is_harmless() -> None:
    found = import_texts({"launch.sh": f"{COMMON}--hidden-dropout 0.0 --attention-dropout 0\n"})
    assert not found.unmodelled


OTHERS = {
    "fsdp.yaml": (
        "distributed_type: FSDP\nnum_machines: 2\nnum_processes: 16\ndebug: true\nuse_cpu: false\n"
        "enable_cpu_affinity: true\nfsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true, "
        "fsdp_auto_wrap_policy: SIZE_BASED_WRAP, fsdp_forward_prefetch: true}\n",
        "debug enable_cpu_affinity fsdp_config.fsdp_auto_wrap_policy fsdp_config.fsdp_forward_prefetch",
    ),
    "bridge.yaml": (
        "model: {tensor_model_parallel_size: 2, num_layers_at_start_in_bf16: 1, tp_comm_split_ag: false, "
        "disable_parameter_transpose_cache: true}\n"
        "train: {micro_batch_size: 1, global_batch_size: 64, rampup_batch_size: [16, 16, 100], "
        "eval_interval: 5, manual_gc: true}\ncheckpoint: {save_interval: 5, async_save: true}\n"
        "logger: {timing_log_level: 2, log_params_norm: true}\ndist: {disable_jit_fuser: true}\n",
        "model.num_layers_at_start_in_bf16 model.disable_parameter_transpose_cache model.tp_comm_split_ag "
        "train.rampup_batch_size train.eval_interval train.manual_gc checkpoint.save_interval checkpoint.async_save "
        "logger.timing_log_level logger.log_params_norm dist.disable_jit_fuser",
    ),
    "titan.toml": (
        "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 1\nseq_len = 4096\n"
        "gc_freq = 5\n[validation]\nenable = true\nfreq = 5\n[fault_tolerance]\nenable = true\n"
        "[debug]\ndeterministic = true\n[profiling]\nenable_profiling = true\n",
        "training.gc_freq validation.enable validation.freq fault_tolerance.enable debug.deterministic "
        "profiling.enable_profiling",
    ),
    "ds_config.json": (
        '{"train_micro_batch_size_per_gpu": 1, "train_batch_size": 64, "bf16": {"enabled": true}, "comms_logger": '
        '{"enabled": true}, "optimizer": {"type": "AdamW", "params": {"torch_adam": true}}, "zero_optimization": '
        '{"stage": 3, "stage3_prefetch_bucket_size": 1, "contiguous_gradients": false}, "wall_clock_breakdown": true}',
        "comms_logger.enabled optimizer.params.torch_adam zero_optimization.stage3_prefetch_bucket_size "
        "zero_optimization.contiguous_gradients wall_clock_breakdown",
    ),
    "llama_factory.yaml": (
        "stage: sft\ndo_train: true\nfinetuning_type: full\nmodel_name_or_path: m\ntemplate: llama3\ndataset: d\n"
        "cutoff_len: 4096\nper_device_train_batch_size: 1\nbf16: true\nenable_liger_kernel: true\n"
        "upcast_layernorm: true\nsave_steps: 10\neval_steps: 10\nuse_galore: true\ndataloader_num_workers: 8\n"
        "ddp_find_unused_parameters: true\nfreeze_vision_tower: true\n",
        "enable_liger_kernel upcast_layernorm save_steps eval_steps use_galore dataloader_num_workers "
        "ddp_find_unused_parameters freeze_vision_tower",
    ),
    "swift.sh": (
        "NPROC_PER_NODE=8 swift sft --model m --tuner_type full --max_length 32768 --padding_free true --packing true "
        "--per_device_train_batch_size 1 --deepspeed zero3\n",
        "padding_free packing",
    ),
    "megatron_swift.sh": (
        "NPROC_PER_NODE=8 megatron sft --load m --tensor_model_parallel_size 2 --micro_batch_size 1 "
        "--global_batch_size 16 --max_length 32768 --packing true\n",
        "--packing",
    ),
    "slime.sh": (
        "python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --tensor-model-parallel-size 2 "
        "--global-batch-size 256 --use-dynamic-batch-size --max-tokens-per-gpu 9216\n",
        "--use-dynamic-batch-size",
    ),
    "olmo.yaml": (
        "model: {d_model: 4096, n_layers: 32, n_heads: 32, max_sequence_length: 8192}\nglobal_train_batch_size: 64\n"
        "device_train_microbatch_size: 2\nprecision: amp_bf16\ndata: {generate_doc_lengths: true}\n",
        "data.generate_doc_lengths",
    ),
    "neox.yml": (
        "pipe_parallel_size: 1\nmodel_parallel_size: 2\nnum_layers: 12\nhidden_size: 768\nnum_attention_heads: 12\n"
        "seq_length: 2048\ntrain_micro_batch_size_per_gpu: 4\npack_impl: unpacked\n",
        "pack_impl",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_changes_speed_is_not_harmless_elsewhere(name: str) -> None:
    text, changing = OTHERS[name]
    found = import_texts({name: text})
    assert set(changing.split()) <= found.unmodelled.keys()


def test_variables_that_change_speed_are_told() -> None:
    """Of a script for MI300X; those that say where to send or what to log are none."""
    before = (
        "export NCCL_IB_DISABLE=1\nexport GPU_MAX_HW_QUEUES=2\nexport NVTE_FUSED_ATTN=0 NCCL_DEBUG=INFO\n"
        "# export CUDA_LAUNCH_BLOCKING=1\nexport NCCL_P2P_DISABLE=0\nexport NCCL_SOCKET_IFNAME=eth0\n"
    )
    found = import_texts({"train.sh": f"{before}{COMMON}\n"})
    assert {"NCCL_IB_DISABLE", "GPU_MAX_HW_QUEUES", "NVTE_FUSED_ATTN"} == {*found.unmodelled}
    assert not found.unknown


def test_variables_of_other_launchers_are_known() -> None:
    overrides = "model.tensor_model_parallel_size=2 train.micro_batch_size=1 train.global_batch_size=64"
    script = f"export NCCL_NVLS_ENABLE=0\ntorchrun --nproc_per_node 8 run_recipe.py --recipe r {overrides}\n"
    found = import_texts({"train.sh": script})
    assert {*found.unmodelled} == {"NCCL_NVLS_ENABLE"} and not found.unknown


def test_every_entry_says_what_it_changes() -> None:
    entries = package_yaml("forerun.spaces.frameworks", "data", "switches", "unmodelled.yaml")
    told = [entry for name, held in entries.items() if name != "assumed" for entry in held]
    assert all(entry.keys() == {"match", "what"} and isinstance(entry["what"], str) for entry in told)
