"""Every model type of transformers: is its default configuration read, and has it the parameters of its class?

    python benchmarks/model_types.py [--only TEXT] [--search] [--counts FILE]

Needs transformers and torch (nothing else here does); says so and stops where they are missing. Each class of the
mappings below is built from its default configuration on torch's meta device, and that configuration, written as
``config.json`` would be, is read by forerun. Prints in Markdown how many of each mapping are read with at most 0.1 % of
the parameters missing or too many, and every other one with what is wrong. Multi-token-prediction blocks are not
counted, since transformers does not build them. ``--search``: also searches strategies of every model that is read, and
prints those without an answer, and the slowest. ``--counts``: the true counts, kept there between runs (JSON).
"""

import argparse
import json
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.search import search
from forerun.search.answer.diagnosis.no_answer import NoAnswer
from forerun.spaces.errors import RequestError
from forerun.spaces.models import parameter_count
from forerun.spaces.models.huggingface import convert_config

MAPPINGS = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "encoder-decoder": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "image-text": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "image classification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "speech to text": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "image and text compared": "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES",
}
TOLERANCE = 1e-3
SEARCHED = {"cluster": "dgx-h100", "global_batch": 512, "seq_len": 512, "top": 1}
PARAMETERS = 2e9
"""Of a GPU at most, so that weights, gradients and optimizer states (18 bytes each) leave room for activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one class: ``read`` is the count of forerun (None: ``why`` says what is missing), ``true`` that
    of the class (None: the class cannot be built here)."""

    kind: str
    model_type: str
    true: int | None
    read: int | None
    why: str = ""

    @property
    def right(self) -> bool:
        """Whether it is read with the parameters that it has."""
        return self.read is not None and self.true is not None and abs(self.read / self.true - 1) <= TOLERANCE


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="types whose mapping or name has this text")
    parser.add_argument("--search", action="store_true", help="search strategies of every model that is read")
    parser.add_argument("--counts", type=Path, help="file in which true counts are kept between runs")
    args = parser.parse_args()
    try:
        import transformers
    except ImportError:
        sys.exit("model_types: transformers is not installed; `pip install transformers torch` beside forerun")
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    known = json.loads(args.counts.read_text()) if args.counts and args.counts.exists() else {}
    configs = {key: config for key, config in configurations() if args.only in "/".join(key)}
    found = [outcome(key, config, known) for key, config in configs.items()]
    if args.counts:
        args.counts.write_text(json.dumps(known, indent=0))
    print("\n".join(table(found)))
    if args.search:
        for line in searched([configs[one.kind, one.model_type][0] for one in found if one.read is not None]):
            print(line, flush=True)


def configurations() -> Iterator[tuple[tuple[str, str], tuple[dict[str, Any], Any, type]]]:
    """Yield, for each (mapping, type), the fields of its default configuration, the configuration, and its class."""
    import transformers
    from transformers.models.auto import modeling_auto

    for kind, mapping in MAPPINGS.items():
        for model_type, names in getattr(modeling_auto, mapping).items():
            name = names if isinstance(names, str) else names[0]
            try:
                config = transformers.CONFIG_MAPPING[model_type]()
            except Exception as error:  # the class refuses its own defaults: nothing to read
                print(f"{kind}/{model_type}: no default configuration ({type(error).__name__})", file=sys.stderr)
                continue
            config.architectures = [name]
            yield (kind, model_type), (json.loads(config.to_json_string(use_diff=False)), config, name)


def outcome(key: tuple[str, str], entry: tuple[dict[str, Any], Any, str], known: dict[str, Any]) -> Outcome:
    """Return what becomes of one class; ``known`` holds true counts, and takes a new one."""
    kind, model_type = key
    fields, config, name = entry
    if "/".join(key) not in known:
        known["/".join(key)] = true_count(config, name)
    read, why = None, ""
    try:
        read = parameter_count(convert_config(fields, model_type).model, mtp=False)
    except RequestError as error:
        why = str(error)
    return Outcome(kind=kind, model_type=model_type, true=known["/".join(key)], read=read, why=why)


def true_count(config: Any, name: str) -> int | None:
    """Return the parameters of the class ``name`` built from ``config``; None where it cannot be built here."""
    import torch
    import transformers

    try:
        with torch.device("meta"):
            built = getattr(transformers, name)
            text = built.config_class is config.sub_configs.get("text_config")  # as AutoModelForCausalLM chooses
            model = built(config.get_text_config() if text else config)
            model.tie_weights()
    except Exception as error:  # a missing package, or defaults that the class cannot be built from
        print(f"{name} cannot be built: {type(error).__name__}: {str(error)[:150]}", file=sys.stderr)
        return None
    return sum({id(one): one.numel() for one in model.parameters()}.values())


def table(found: list[Outcome]) -> Iterator[str]:
    """Yield the counts of each mapping, then a line for every class that is not read right."""
    yield "| mapping | types | read | within 0.1 % | refused | not built here |\n|---|---:|---:|---:|---:|---:|"
    for kind in (*MAPPINGS, "all"):
        of = [one for one in found if kind in (one.kind, "all")]
        read = [one for one in of if one.read is not None]
        built = [one for one in of if one.true is not None]
        cells = (kind, len(of), len(read), sum(one.right for one in of), len(of) - len(read), len(of) - len(built))
        yield f"| {' | '.join(map(str, cells))} |"
    yield "\n| mapping | type | parameters | read | what is wrong |\n|---|---|---:|---:|---|"
    for one in found:
        if not one.right:
            why = one.why.removeprefix("config.json: ").replace("|", "/")
            if one.read is not None:
                why = "the class cannot be built here" if one.true is None else f"{one.read / one.true - 1:+.2%}"
            cells = (one.kind, one.model_type, one.true or "", one.read or "", why)
            yield f"| {' | '.join(map(str, cells))} |"


def searched(configs: list[Mapping[str, Any]]) -> Iterator[str]:
    """Search every model once on as many GPUs as it needs, sixteen at least; yield those without an answer, and the
    processor time of the slowest."""
    took: list[tuple[float, str]] = []
    wrong = 0
    for fields in configs:
        name = f"{fields['model_type']} ({fields['architectures'][0]})"
        start = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.json"
            path.write_text(json.dumps(fields))
            size = parameter_count(convert_config(fields, name).model)
            gpus = 2 ** max(4, math.ceil(math.log2(size / PARAMETERS)))
            try:
                search(model=str(path), gpus=gpus, **SEARCHED)  # type: ignore[arg-type]  # values of the fields' types
            except (RequestError, NoAnswer) as error:
                wrong += 1
                yield f"- {name}, {gpus} GPUs: {str(error).replace(str(path), 'config.json').splitlines()[0]}"
        took.append((time.process_time() - start, name))
    slowest = ", ".join(f"{name} {seconds:.1f} s" for seconds, name in sorted(took, reverse=True)[:5])
    yield f"\n{len(took) - wrong} of {len(took)} searches have an answer; the slowest: {slowest}"


if __name__ == "__main__":
    main()
