"""Scripts whose degrees come from their arguments or from the environment; what nobody states is asked for by name."""

import pytest

from forerun.search.cli.program import main
from forerun.search.formats import Imported, contract, import_texts
from forerun.search.formats.shell import Given, Script, read_script
from forerun.spaces.errors import RequestError

POSITIONAL = """\
#!/bin/bash
ENV=$1
if [ -z ${KEEP} ];then
    KEEP=2
fi
if [ $ENV = one ]; then
    NNODES=1
    GPUS=8
elif [ $ENV = many ]; then
    NNODES=${WORLD_SIZE}
    GPUS=8
fi
TP=$2
PP=${3}
shift 3
SP=$1
SAVE=${2}
OVERLAP=$(( ($TP > 1) ? 1 : 0 ))
if [ $OVERLAP -eq 1 ]; then
    overlap="--tp-comm-overlap"
fi
if [ $SAVE = full ]; then
    save="--recompute-granularity full --recompute-method uniform --recompute-num-layers ${KEEP}"
fi
if [ $SP = true ] && [ $TP -gt 1 ]; then
    sp=" --sequence-parallel"
fi
options=" --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} --micro-batch-size 2 \\
  --global-batch-size 64 --num-layers 32 --seq-length 4096 --bf16 "
run="torchrun --nproc_per_node $GPUS --nnodes $NNODES pretrain.py
 ${options} ${overlap} ${save} ${sp}"
eval ${run}
"""
BARE = """\
NNODES=$SLURM_NNODES
torchrun --nproc-per-node 8 --nnodes $NNODES pretrain_gpt.py --tensor-model-parallel-size $TP \\
  --pipeline-model-parallel-size ${PP} --micro-batch-size 1 --global-batch-size 64 --num-layers 32
"""
EXPORTS = 'for A in "$@"; do\n export "$A"\ndone\n'


def read(text: str, *arguments: str, **variables: str) -> Imported:
    return import_texts({"run.sh": text}, given=Given(arguments=arguments, variables=variables))


@pytest.mark.parametrize(
    ("text", "arguments", "variables", "strategy", "gpus"),
    [
        (POSITIONAL, "one 4 2 true full", {}, "tp4 pp2 dp1 mbs2 sp recompute=full/2", 8),
        (POSITIONAL, "one 1 2 true none", {}, "tp1 pp2 dp4 mbs2", 8),
        (POSITIONAL, "many 4 2 true none", {"WORLD_SIZE": "16"}, "tp4 pp2 dp16 mbs2 sp", 128),
        (f"TP=2\n{BARE}", "", {"TP": "4", "PP": "2", "SLURM_NNODES": "2"}, "tp4 pp2 dp2 mbs1", 16),  # over the script
        (f"#SBATCH --nodes=4\n{BARE}", "", {"TP": "4", "PP": "2"}, "tp4 pp2 dp4 mbs1", 32),
        (EXPORTS + BARE, "TP=2 PP=4", {"SLURM_NNODES": "1"}, "tp2 pp4 dp1 mbs1", 8),
    ],
)
def test_arguments_and_variables_decide_degrees_and_branches(
    text: str, arguments: str, variables: dict[str, str], strategy: str, gpus: int
) -> None:
    found = read(text, *arguments.split(), **variables)

    assert (str(found.strategy), found.workload["gpus"]) == (strategy, gpus)


def test_nodes_that_nobody_states_are_not_one() -> None:
    found = read(BARE, TP="4", PP="2")

    assert "gpus" not in found.workload
    assert any("--gpus" in text for text in found.defaults)


def test_what_is_missing_is_listed_with_what_it_decides() -> None:
    with pytest.raises(RequestError) as caught:
        read(BARE)

    assert "tensor_model_parallel_size=$TP, pipeline_model_parallel_size=${PP}" in str(caught.value)
    assert "--set-var TP=... --set-var PP=..." in str(caught.value)
    with pytest.raises(RequestError, match="arguments that the script is started with after --"):
        read(POSITIONAL)


def test_the_command_line_takes_both(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    script = tmp_path / "run.sh"
    script.write_text(POSITIONAL)

    assert main(["import", str(script), "--set-var", "WORLD_SIZE=2", "--", "many", "2", "2", "true", "full"]) == 0
    assert "tp2 pp2 dp4 mbs2 sp recompute=full" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["TP"], ["2=3"], ["TP=1", "--set-var", "TP=2"]])
def test_a_wrong_variable_is_refused(words: list[str], tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    script = tmp_path / "run.sh"
    script.write_text(BARE)

    assert main(["import", str(script), "--set-var", *words]) == 2
    assert "--set-var" in capsys.readouterr().err


def test_a_script_reads_another_that_is_given_with_it() -> None:
    run = (
        'source "${DIR}/models/small.sh"\nTP=2\n. `pwd`/CONFIG.sh\n'
        "torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py ${MODEL[@]} ${ARGS}\n"
    )
    files = {
        "run.sh": run,
        "small.sh": "MODEL=(--num-layers 12 --hidden-size 768)\n",
        "CONFIG.sh": 'ARGS="--tensor-model-parallel-size ${TP} --micro-batch-size 2 --global-batch-size 64 --bf16"\n',
    }

    found = import_texts(files)

    assert str(found.strategy) == "tp2 pp1 dp4 mbs2"
    assert (found.model["layers"], found.model["hidden"]) == (12, 768)
    circle = {"a.sh": "source b.sh\ntorchrun x.py --num-layers 8\n", "b.sh": "source a.sh\nsource b.sh\n"}
    assert import_texts(circle).model["layers"] == 8


@pytest.mark.parametrize("script", ["torchrun --nproc_per_node 8", "torchrun --nproc_per_node $1"])
def test_each_script_of_a_run_is_parsed_once_for_a_start(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[tuple[str, bool]] = []

    def read(text: str, name: str, given: Given) -> Script:
        starts.append((name, given.bare))
        return read_script(text, name, given)

    monkeypatch.setattr(contract, "read_script", read)
    arguments = "--tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 8 --seq-length 64"
    import_texts({"launch.sh": f"{script} pretrain_gpt.py {arguments}\n", "env.sh": "export NCCL_DEBUG=INFO\n"})
    assert ("launch.sh", False) in starts and len(starts) == len({*starts})


ARGUMENTS = "--tensor-model-parallel-size {tp} --micro-batch-size 1 --global-batch-size 64 --num-layers 8 --bf16"


def test_what_follows_a_test_that_cannot_be_decided_is_left_out() -> None:
    text = f"ARGS=({ARGUMENTS.format(tp=2)})\n[[ $EIGHT == 1 ]] && ARGS+=(--fp8-format hybrid)\n"
    text += "python gpt.py ${ARGS[@]}\n"

    found = import_texts({"run.sh": text}, gpus=8)
    asked = import_texts({"run.sh": text}, gpus=8, given=Given(variables={"EIGHT": "1"}))

    assert found.workload["precision"] == "bf16"
    assert any("what follows && is left out" in note for note in found.notes)
    assert asked.workload["precision"] == "fp8"


@pytest.mark.parametrize(
    ("line", "tp"),
    [
        ('[ "$A" = 1 ] && TP=4 || TP=8', 4),
        ('[ "$A" = 2 ] && TP=4 || TP=8', 8),
        ("mkdir -p logs || TP=8", 2),
        ("mkdir -p logs && TP=8", 8),
        ('test "$A" = 2 && TP=8', 2),
        ('! [ "$A" = 2 ] && TP=8', 8),
        ("false || TP=8", 8),
    ],
)
def test_lists_of_commands_run_as_in_a_shell(line: str, tp: int) -> None:
    text = f"A=1\nTP=2\n{line}\npython gpt.py {ARGUMENTS.format(tp='$TP')}\n"

    assert import_texts({"run.sh": text}, gpus=8).strategy.tp == tp


@pytest.mark.parametrize(
    "started",
    [
        "cat > inner.sh << 'EOF'\npython gpt.py {inside}\nEOF\nsrun bash inner.sh\n",
        "CMD='\nset -e\npython gpt.py {inside}\n'\nsrun bash -c \"$CMD\"\n",
    ],
)
def test_a_script_inside_of_a_script_is_read_with_its_variables(started: str) -> None:
    text = "#SBATCH --nodes=2 --gpus-per-node=8\nTP=4\n" + started.format(inside=ARGUMENTS.format(tp="$TP"))

    assert str(import_texts({"run.slurm": text}).strategy) == "tp4 pp1 dp4 mbs1"


def test_a_recipe_whose_degrees_are_arguments_says_so() -> None:
    text = "def recipe(tp):\n    cfg = base()\n    cfg.model.tensor_model_parallel_size = tp\n    return cfg\n"

    with pytest.raises(RequestError, match="from arguments or code, which is not run"):
        import_texts({"recipe.py": text})


BRIDGE = "train: {micro_batch_size: 1, global_batch_size: 64}\nmodel:\n  seq_length: 2048\n"
DEGREES = "  pipeline_model_parallel_size: 2\n  tensor_model_parallel_size: "


@pytest.mark.parametrize(
    ("lines", "variables", "strategy"),
    [
        (DEGREES + '"${TP}"\n', {"TP": "2"}, "tp2 pp2 dp4 mbs1 zero1"),
        (DEGREES + '"${MY_TP:4}"\n', {}, "tp4 pp2 dp2 mbs1 zero1"),
        (DEGREES + '"${MY_TP:4}"\n', {"MY_TP": "2"}, "tp2 pp2 dp4 mbs1 zero1"),
        (DEGREES + '"${oc.env:TP,2}"\n', {}, "tp2 pp2 dp4 mbs1 zero1"),
        (DEGREES + '"${.pipeline_model_parallel_size}"\n', {}, "tp2 pp2 dp4 mbs1 zero1"),
        (DEGREES + '"${model.pipeline_model_parallel_size}"\n', {}, "tp2 pp2 dp4 mbs1 zero1"),
        (DEGREES + '"${multiply:${.pipeline_model_parallel_size},2}"\n', {}, "tp4 pp2 dp2 mbs1 zero1"),
        (
            DEGREES + '2\n  num_layers: 32\n  cpu_offloading_num_layers: "${sum:${.num_layers},-1}"\n',
            {},
            "tp2 pp2 dp4 mbs1 zero1",
        ),
    ],
)
def test_references_of_a_document_are_followed(lines: str, variables: dict[str, str], strategy: str) -> None:
    found = import_texts({"a.yaml": BRIDGE + lines}, gpus=16, given=Given(variables=variables))

    assert str(found.strategy) == strategy


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ("${TP}", "give --set-var TP=..."),
        ("${oc.env:TP}", "give --set-var TP=..."),
        ("${model.nothing}", "write the numbers"),
        ("${.tensor_model_parallel_size}", None),
        ("${other:3,4}x", None),
    ],
)
def test_what_references_lack_is_named_with_what_would_do(value: str, remedy: str | None) -> None:
    with pytest.raises(RequestError) as caught:
        import_texts({"a.yaml": f'{BRIDGE}{DEGREES}"{value}"\n'}, gpus=16)

    assert remedy is None or str(caught.value).endswith(remedy)


def test_references_that_grow_are_not_followed_forever() -> None:
    lines = "".join(f'  k{n}: "{f"${{.k{n + 1}}}" * 300}"\n' for n in range(9))
    with pytest.raises(RequestError):
        import_texts({"a.yaml": f'{BRIDGE}{lines}  k9: "1"\n{DEGREES}"${{.k0}}"\n'}, gpus=16)
