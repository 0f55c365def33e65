"""The file of a gradient profile: the measured step of one worker."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from forerun.simulator.modes import GradientLayer, GradientProfile
from forerun.spaces.documents import read_document, validate
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text
from forerun.spaces.units import parse_bytes, parse_rate, parse_seconds


def _quantity(parse: Callable[[str | float], float]) -> BeforeValidator:
    """Return a validator that reads a text or number with a unit."""

    def read(value: Any) -> float:
        if not isinstance(value, str | int | float):
            raise ValueError("must be a number with a unit")
        try:
            return parse(value)
        except RequestError as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(read)


Bytes = Annotated[float, _quantity(parse_bytes)]
Seconds = Annotated[float, _quantity(parse_seconds)]
Rate = Annotated[float, _quantity(parse_rate)]


class GradientLayerDocument(BaseModel):
    """A layer: ``parameters`` in bytes on the wire, times like ``3ms``."""

    model_config = ConfigDict(extra="forbid")

    name: str
    parameters: Bytes
    forward: Seconds
    backward: Seconds


class ProfileDocument(BaseModel):
    """A profile; ``step_factors`` are sampled step times over their mean."""

    model_config = ConfigDict(extra="forbid")

    name: str
    batch: float = Field(gt=0)
    host: Seconds = 0.0
    update: Seconds = 0.0
    step_factors: list[float] = Field(default_factory=list, max_length=100_000)
    layers: list[GradientLayerDocument] = Field(min_length=1, max_length=10_000)


def read_profile(path: Path) -> GradientProfile:
    """Read a profile from YAML or JSON.

    Raises:
        RequestError: the file cannot be read or lacks a field; the message names the line.
    """
    document = validate(read_document(path), ProfileDocument)
    return GradientProfile(
        name=document.name,
        layers=tuple(
            GradientLayer(
                name=layer.name,
                parameter_bytes=layer.parameters,
                forward_s=layer.forward,
                backward_s=layer.backward,
            )
            for layer in document.layers
        ),
        batch=document.batch,
        host_s=document.host,
        update_s=document.update,
        step_factors=tuple(document.step_factors),
    )


def write_gradient_profile(profile: GradientProfile, path: Path) -> None:
    """Write a profile as ``read_profile`` reads it.

    Raises:
        RequestError: the file cannot be written.
    """
    layers = [
        {
            "name": layer.name,
            "parameters": f"{layer.parameter_bytes:.0f}B",
            "forward": f"{layer.forward_s * 1e3:.6g}ms",
            "backward": f"{layer.backward_s * 1e3:.6g}ms",
        }
        for layer in profile.layers
    ]
    document = {
        "name": profile.name,
        "batch": profile.batch,
        "host": f"{profile.host_s * 1e3:.6g}ms",
        "update": f"{profile.update_s * 1e3:.6g}ms",
        "step_factors": [round(factor, 6) for factor in profile.step_factors],
        "layers": layers,
    }
    write_text(path, yaml.safe_dump(document, sort_keys=False))
