"""Launch files of many tools, written small for the tests."""

NEOX = """\
# JSON in YAML, with the commas that YAML takes
{
  "pipe-parallel-size": 4, "model-parallel-size": 2, "num-layers": 44, "hidden-size": 6144,
  "seq-length": 2048, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 32,
  "checkpoint-activations": true, "fp16": {"enabled": true, "loss_scale": 0,},
  "zero_optimization": {"stage": 1, "overlap_comm": True,},
}
"""
AXOLOTL = """\
base_model: org/some-8b
sequence_len: 4096
micro_batch_size: 2
gradient_accumulation_steps: 4
bf16: auto
"""
FACTORY = """\
model_name_or_path: org/some-8b
stage: sft
finetuning_type: full
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
bf16: true
"""
OLMO = """\
device_train_microbatch_size: 2
global_train_batch_size: 2048
max_duration: 100ep
precision: amp_bf16
activation_checkpointing: whole_layer
model: {d_model: 4096, n_heads: 32, n_layers: 32, max_sequence_length: 4096}
fsdp: {wrapping_strategy: by_block, precision: mixed, sharding_strategy: FULL_SHARD}
"""
OLMO_CORE = """\
from olmo_core.internal.experiment import main
SEQUENCE_LENGTH = 8 * 1024
GLOBAL_BATCH_SIZE = 512 * SEQUENCE_LENGTH

def build_train_module_config(common):
    return TransformerTrainModuleConfig(
        rank_microbatch_size=2 * SEQUENCE_LENGTH,
        max_sequence_length=SEQUENCE_LENGTH,
        dp_config=TransformerDataParallelConfig(
            name=DataParallelType.hsdp, param_dtype=DType.bfloat16, shard_degree=32
        ),
        tp_config=TransformerTensorParallelConfig(degree=2),
        ac_config=TransformerActivationCheckpointingConfig(mode=TransformerActivationCheckpointingMode.budget),
    )

main(global_batch_size=GLOBAL_BATCH_SIZE)
"""
LEVANTER = """\
data: !include data/some.yaml
model: {type: llama, num_layers: 32, hidden_dim: 4096, seq_len: 4096, gradient_checkpointing: false}
trainer:
  mp: p=f32,c=bfloat16
  model_axis_size: 2
  per_device_parallelism: 4
  train_batch_size: 1024
"""
VERL = """\
python3 -m verl.trainer.main_ppo data.max_prompt_length=1024 data.max_response_length=3072 \\
  actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \\
  actor_rollout_ref.rollout.n=8 actor_rollout_ref.rollout.tensor_model_parallel_size=4 \\
  trainer.n_gpus_per_node=8 trainer.nnodes=2 \\
"""
MAXTEXT = "python3 -m MaxText.train MaxText/configs/base.yml model_name=llama2-70b max_target_length=4096 \\\n"
COLOSSAL = "colossalai run --nproc_per_node 8 --hostfile hosts benchmark.py -g -x -b 16 -l 4096 \\\n"
SWIFT = "NPROC_PER_NODE=8 swift sft --model org/some --tuner_type full --torch_dtype bfloat16 \\\n"
RECIPES = """\
from megatron.bridge.recipes.common import _pretrain_common
def some_8b_pretrain_config():
    cfg = _pretrain_common()
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.sequence_parallel = True
    cfg.ddp.use_distributed_optimizer = True
    cfg.dataset.seq_length = 8192
    cfg.train.global_batch_size = 512
    return cfg

def _some_common(pipeline_model_parallel_size: int = 1, global_batch_size: int = 64):
    model = SomeProvider(tensor_model_parallel_size=4)
    model.pipeline_model_parallel_size = pipeline_model_parallel_size
    return ConfigContainer(
        model=model, train=TrainingConfig(global_batch_size=global_batch_size, micro_batch_size=2)
    )

def some_70b_pretrain_config(**user):
    sizes = {"pipeline_model_parallel_size": 4}
    return _some_common(**{**sizes, **user})
"""
PRESETS = """\
BASE_SOME_CONFIG = WorkloadBaseConfig(tensor_model_parallel_size=4, recompute_modules=["core_attn"])
SOME_CONFIG_H100_FP8_CS = replace(BASE_SOME_CONFIG, num_gpus=64, pipeline_model_parallel_size=2, global_batch_size=128)
SOME_CONFIG_B200_NVFP4 = replace(SOME_CONFIG_H100_FP8_CS, num_gpus=128, recompute_modules=None)
"""
ASCEND = """\
NPUS_PER_NODE=8
NNODES=2
torchrun --nproc_per_node $NPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py --tensor-model-parallel-size 8 \\
  --sequence-parallel --use-distributed-optimizer --reuse-fp32-param --context-parallel-algo ulysses_cp_algo \\
  --num-layers 48 --seq-length 8192 --micro-batch-size 1 --global-batch-size 64 --bf16
"""
DEEPSPEED = '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}'
