"""Launch files that state too little, or what cannot be: they are refused by name, or a note says it."""

import pytest
from launch_files import text_of

from forerun.search.formats import Imported, import_texts
from forerun.search.formats.shell import Given
from forerun.spaces.errors import RequestError

MEGATRON = (
    "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --tensor-model-parallel-size 1 "
    "--pipeline-model-parallel-size 8 --context-parallel-size 2 --num-experts 128 --num-layers 32 "
    "--micro-batch-size 1 --global-batch-size 64 --bf16 --expert-model-parallel-size {}\n"
)


def test_a_trainer_of_ones_own_is_refused() -> None:
    script = (
        "srun torchrun --nnodes 2 --nproc_per_node 8 my_trainer.py --num_layers 24 --width 2048 --batch 4 --shard full "
        "--dtype bf16 --context 4096\n"
    )

    with pytest.raises(RequestError, match="states no degree and no batch"):
        import_texts({"a.sh": script})


def read(ep: int) -> Imported:
    return import_texts({"a.sh": MEGATRON.format(ep)})


def test_a_degree_that_cannot_be_formed_is_named() -> None:
    assert any("ep=8 cannot be formed" in note and "there are 4" in note for note in read(8).notes)
    assert not any("cannot be formed" in note for note in read(4).notes)


def test_weights_in_fp32_under_autocast_are_said() -> None:
    nemo = text_of("NeMo: precision 32").replace("precision: 32", "precision: bf16")
    assert any(
        "megatron_amp_O2" in note for note in import_texts({"a.yaml": nemo + "  megatron_amp_O2: false\n"}).notes
    )
    assert not import_texts({"a.yaml": nemo + "  megatron_amp_O2: true\n"}).notes


def test_a_launcher_from_an_argument_is_asked_for() -> None:
    script = (
        '#!/bin/bash\nLAUNCHER=$1\nif [ -z "$1" ]; then echo "usage: sbatch job.slurm --config X"; fi\nsrun $LAUNCHER\n'
    )

    with pytest.raises(RequestError, match=r"starts \$1, .* give the arguments of the script after --"):
        import_texts({"job.slurm": script}, given=Given())
